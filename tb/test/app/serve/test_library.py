"""Tests of libibverbs.so.1: exported symbols, and its header against the layouts."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from weft.driver.ibverbs import build, messages, rings
from weft.driver.ibverbs.build import HERE
from weft.hdl.contract.layout import Field, Layout

OLD_ONLY = {"ibv_register_driver"}      # only for programs linked against an old version
DEBIAN = next(Path("/usr/lib").glob("*-linux-gnu/libibverbs.so.1"), None)


def versioned(path):
    """Return ``name@version`` of each symbol that a library defines."""
    listed = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in listed.splitlines()}


def test_every_symbol_of_the_map_is_defined(library):
    text = re.sub(r"/\*.*?\*/", "", (HERE / "libibverbs.map").read_text(), flags=re.DOTALL)
    names = set(re.findall(r"\b([a-z_]\w*);", text)) - OLD_ONLY
    loaded = ctypes.CDLL(str(library))
    assert len(names) > 100
    assert not [name for name in names if not hasattr(loaded, name)]


def test_symbols_and_versions_are_those_of_debian(library):
    if DEBIAN is None or shutil.which("nm") is None:
        pytest.skip("libibverbs1 or nm is missing; on Debian: apt-get install libibverbs1 binutils")
    theirs = versioned(DEBIAN)
    if not any("IBVERBS_PRIVATE_34" in symbol for symbol in theirs):
        pytest.skip("the libibverbs here is not of rdma-core 33 to 44")
    assert theirs <= versioned(library)


def test_the_header_has_every_layout():
    text = build.header()
    for layout in (*messages.layouts().values(), *rings.SHARED):
        assert f"sizeof(struct weft_{layout.name}) == {layout.size_bytes}" in text
    assert "struct weft_nothing" not in text


@pytest.mark.parametrize("fields", [[Field("a", 4), Field("b", 4)], [Field("a", 8), Field("b", 16), Field("c", 8)]])
def test_types_unknown_to_c_are_rejected(fields):
    with pytest.raises(ValueError, match="nothing that C has"):
        list(build.struct(Layout("odd", "", fields, size_bytes=sum(f.width for f in fields) // 8)))
