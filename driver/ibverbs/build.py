"""Build of the C libraries for served programs: ``python -m weft.driver.ibverbs.build [FOLDER]``."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from weft.hdl.contract.abi import KEY_TAG_BITS

from ..terms.program_mapping import MappingMethod
from . import messages, rings

_TYPES = {8: "uint8_t", 16: "uint16_t", 32: "uint32_t", 64: "uint64_t"}
HERE = Path(__file__).resolve().parent
ENGINE = HERE.parent / "serve/direct"
NAME, PRELOAD, DIRECT = "libibverbs.so.1", "libweft-preload.so", "libweft-direct.so"
# Sources of the preload library, which is loaded before the C library. The others are of libibverbs; both have SHARED.
PRELOADED = ("preload.c", "sysfs.c", "interfaces.c", "rdma_cm.c", "rdma_cm_commands.c", "clock.c")
SHARED = ("socket.c",)
FLAGS = ("-std=gnu11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Werror")
NEEDED = "/usr/include/infiniband/verbs.h"


def header():
    """Return the text of ``contract.h``."""
    parts = ["/* Made of driver/ibverbs/messages.py and rings.py: not to be edited. */", "#pragma once",
             "#include <assert.h>", "#include <stdint.h>", ""]
    for name in ("VERSION", "MESSAGE_BYTES_MAX", "SENTENCE_BYTES_MAX", "FILES_MAX"):
        parts.append(f"#define WEFT_{name} {getattr(messages, name)}u")
    parts.append(f"#define WEFT_KEY_TAG_BITS {KEY_TAG_BITS}u")
    for prefix, kind in (("WEFT", messages.Opcode), ("WEFT_KIND", messages.Kind), ("WEFT_MOST", rings.Limit),
                         ("WEFT_DOORBELL", rings.Doorbell), ("WEFT_MAPPING", MappingMethod)):
        values = ", ".join(f"{prefix}_{member.name} = {member.value}" for member in kind if member.value < 1 << 31)
        parts += [f"enum {{ {values} }};"]
    for layout in (*messages.layouts().values(), *rings.SHARED):
        parts += ["", *struct(layout)]
    return "\n".join(parts) + "\n"


def struct(layout):
    """Yield the lines of a struct.

    Raises
    ------
    ValueError
        If a field has no C type, or is not at a multiple of its size.
    """
    yield f"struct weft_{layout.name} {{"
    for field in layout.fields:
        kind, at = _TYPES.get(field.width), layout.offset_of(field.name)
        if kind and at % field.width == 0:
            yield f"    {kind} {field.name};"
        elif kind is None and field.width % 8 == at % 8 == 0:
            yield f"    uint8_t {field.name}[{field.width // 8}];"
        else:
            raise ValueError(f"{layout.name}.{field.name}: {field.width} bits at bit {at} are nothing that C has")
    yield "};"
    yield f'static_assert(sizeof(struct weft_{layout.name}) == {layout.size_bytes}, "{layout.name}");'


class CannotBuild(Exception):
    """Missing tool or failed build; the message is a sentence."""


def missing():
    """Return a sentence if a tool or a header is missing, or None."""
    if compiler() is None:
        return "there is no C compiler; on Debian: apt-get install gcc"
    if not Path(NEEDED).exists():
        return f"{NEEDED} is missing; on Debian: apt-get install libibverbs-dev"
    return None


def compiler():
    """Return the path of a C compiler, or None."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder):
    """Build the libraries in ``folder`` unless they are up to date, and return the path of libibverbs.

    Raises
    ------
    CannotBuild
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _build(folder)


def _build(folder):
    contract, script = header(), HERE / "libibverbs.map"
    digest = hashlib.sha256(contract.encode())
    sources = (file for place in (HERE, ENGINE) for file in sorted(place.glob("*.[ch]")))
    for file in (*sources, script, Path(__file__)):
        digest.update(file.read_bytes())
    library, stamp = folder / NAME, folder / "stamp"
    if library.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest():
        return library
    if sentence := missing():
        raise CannotBuild(sentence)
    stamp.unlink(missing_ok=True)
    (folder / "contract.h").write_text(contract)
    preloaded = [HERE / name for name in (*PRELOADED, *SHARED)]
    _link(folder, PRELOAD, preloaded, "-ldl")
    _link(folder, DIRECT, sorted(ENGINE.glob("*.c")))
    _link(folder, NAME, [file for file in sorted(HERE.glob("*.c")) if file.name not in PRELOADED],
          f"-Wl,--version-script={script}")
    stamp.write_text(digest.hexdigest())
    return library


def _link(folder, name, sources, *options):
    fresh = folder / f"{name}.new"
    command = [compiler(), *FLAGS, f"-I{folder}", "-shared", f"-Wl,-soname,{name}", "-Wl,-z,defs", "-o", fresh,
               *sources, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CannotBuild(f"the C compiler failed:\n{done.stderr}")
    fresh.replace(folder / name)


if __name__ == "__main__":
    try:
        print(build(sys.argv[1] if len(sys.argv) > 1 else "sim_build/ibverbs"))
    except CannotBuild as problem:
        sys.exit(f"make ibverbs: {problem}")
