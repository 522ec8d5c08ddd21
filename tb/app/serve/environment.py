"""Environment of a program, in which it finds the card of its host."""

import os
from pathlib import Path

from weft.driver.ibverbs.build import PRELOAD

# A separate constant, because that of tb/sim/flow is absolute and slow to import: the command line must also start in
# a working folder that does not exist.
BUILD_ROOT = Path(os.environ.get("WEFT_BUILD") or "sim_build")
LIBRARY_FOLDER = BUILD_ROOT / "ibverbs"
FOLDER = BUILD_ROOT / "serve"


def environment_of(socket: str | Path) -> dict[str, str]:
    """Return the environment of a program on the host with this socket: this one, with libraries and socket."""
    return dict(os.environ, WEFT_SOCKET=str(Path(socket).absolute()),
                LD_LIBRARY_PATH=_first(str(LIBRARY_FOLDER.absolute()), "LD_LIBRARY_PATH"),
                LD_PRELOAD=_first(PRELOAD, "LD_PRELOAD"))      # found through LD_LIBRARY_PATH


def _first(value: str, variable: str) -> str:
    """Return a list with colons: the value, then the variable's present contents."""
    return ":".join(filter(None, (value, os.environ.get(variable))))
