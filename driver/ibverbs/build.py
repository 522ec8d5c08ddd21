"""Building libibverbs.so.1: ``python -m weft.driver.ibverbs.build [FOLDER]``."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from .header import header

HERE = Path(__file__).resolve().parent
NAME = "libibverbs.so.1"
FLAGS = ("-std=gnu11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Werror")
NEEDED = "/usr/include/infiniband/verbs.h"


class CannotBuild(Exception):
    """A sentence that says what is missing or wrong."""


def missing():
    """A sentence if a tool or a header is not there, or None."""
    if compiler() is None:
        return "no C compiler is there; on Debian: apt-get install gcc"
    if not Path(NEEDED).exists():
        return f"{NEEDED} is missing; on Debian: apt-get install libibverbs-dev"
    return None


def compiler():
    """Path of a C compiler, or None."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder):
    """Build the library in ``folder``, if it is not there as its sources are; its path.

    Raises
    ------
    CannotBuild
    """
    if sentence := missing():
        raise CannotBuild(sentence)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _build(folder)


def _build(folder):
    sources, contract = sorted(HERE.glob("*.c")), header()
    digest = hashlib.sha256(contract.encode())
    for file in (*sources, *sorted(HERE.glob("*.h")), HERE / "libibverbs.map", Path(__file__)):
        digest.update(file.read_bytes())
    library, stamp = folder / NAME, folder / "stamp"
    if library.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest():
        return library
    (folder / "contract.h").write_text(contract)
    fresh = folder / f"{NAME}.new"
    command = [compiler(), *FLAGS, f"-I{folder}", "-shared", f"-Wl,-soname,{NAME}", "-Wl,-z,defs",
               f"-Wl,--version-script={HERE / 'libibverbs.map'}", "-o", fresh, *sources]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CannotBuild(f"the C compiler failed:\n{done.stderr}")
    fresh.replace(library)
    stamp.write_text(digest.hexdigest())
    return library


if __name__ == "__main__":
    try:
        print(build(sys.argv[1] if len(sys.argv) > 1 else "sim_build/ibverbs"))
    except CannotBuild as problem:
        sys.exit(f"make ibverbs: {problem}")
