"""Installation of the libraries below a prefix, or in an archive ``.tar.gz`` with the same files.

``python -m weft.driver.ibverbs.install PREFIX`` installs ``lib/weft`` with both libraries,
``lib/pkgconfig/weft-ibverbs.pc`` and ``bin/weft-run``. They may be moved together. ``weft-run PROGRAM...`` needs no
Python: it runs a program on the host whose socket WEFT_SOCKET names.
"""

import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from .build import NAME, PRELOAD, CannotBuild, build

BUILT = "sim_build/ibverbs"
RUN = f"""#!/bin/sh
# weft-run PROGRAM...: an RDMA program on the served host whose socket WEFT_SOCKET names, or /run/weft/host.sock.
libraries=$(CDPATH= cd -- "$(dirname -- "$0")/../lib/weft" && pwd) || exit 1
export LD_LIBRARY_PATH="$libraries${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export LD_PRELOAD="{PRELOAD}${{LD_PRELOAD:+:$LD_PRELOAD}}"
exec "$@"
"""
PKG_CONFIG = """prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib/weft

Name: weft-ibverbs
Description: libibverbs for programs on simulated RDMA cards
Version: {version}
Libs: -L${{libdir}} -l:{library}
"""


def install(prefix, built=BUILT):
    """Install all files below ``prefix``, and return it.

    Raises
    ------
    CannotBuild
    """
    library, prefix = build(built), Path(prefix)
    for name in (NAME, PRELOAD):
        _put(prefix / "lib/weft" / name, (library.parent / name).read_bytes(), 0o755)
    _put(prefix / "bin/weft-run", RUN.encode(), 0o755)
    text = PKG_CONFIG.format(version=version("weft-rnic"), library=NAME)
    _put(prefix / "lib/pkgconfig/weft-ibverbs.pc", text.encode(), 0o644)
    return prefix


def _put(path, data, mode):
    """Write a file by replacement, so that processes that have the old one open keep it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.new")
    part.write_bytes(data)
    part.chmod(mode)
    part.replace(path)


def pack(file, built=BUILT):
    """Write an archive of the installed files, below ``weft-ibverbs/``, and return its path."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = install(Path(folder, "weft-ibverbs"), built)
        with tarfile.open(file, "w:gz") as archive:
            archive.add(prefix, prefix.name)
    return Path(file)


if __name__ == "__main__":
    try:
        to = sys.argv[1]
        print((pack if to.endswith(".tar.gz") else install)(to))
    except CannotBuild as problem:
        sys.exit(f"make ibverbs: {problem}")
