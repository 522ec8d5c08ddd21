"""What a program needs to find the card of its host."""

import os
from pathlib import Path

# Not tb/flow's, which is absolute and slow to import: the command line starts without a working folder, too.
BUILD_ROOT = Path(os.environ.get("WEFT_BUILD") or "sim_build")
LIBRARY_FOLDER = BUILD_ROOT / "ibverbs"
FOLDER = BUILD_ROOT / "serve"


def environment_of(socket):
    """Environment of a program whose host's socket is there: this one, and where library and daemon are."""
    paths = [str(LIBRARY_FOLDER.absolute()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return dict(os.environ, WEFT_SOCKET=str(Path(socket).absolute()), LD_LIBRARY_PATH=":".join(paths))
