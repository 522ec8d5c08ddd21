"""What a program needs to find the card of its host."""

import os
from pathlib import Path

from weft.driver.ibverbs.build import PRELOAD

# Not tb/sim/flow's, which is absolute and slow to import: the command line starts without a working folder, too.
BUILD_ROOT = Path(os.environ.get("WEFT_BUILD") or "sim_build")
LIBRARY_FOLDER = BUILD_ROOT / "ibverbs"
FOLDER = BUILD_ROOT / "serve"


def environment_of(socket):
    """Environment of a program whose host's socket is there: this one, and where libraries and daemon are."""
    return dict(os.environ, WEFT_SOCKET=str(Path(socket).absolute()),
                LD_LIBRARY_PATH=_first(str(LIBRARY_FOLDER.absolute()), "LD_LIBRARY_PATH"),
                LD_PRELOAD=_first(PRELOAD, "LD_PRELOAD"))      # found by the path of libraries


def _first(value, variable):
    """A list with colons: this, and what there was before."""
    return ":".join(filter(None, (value, os.environ.get(variable))))
