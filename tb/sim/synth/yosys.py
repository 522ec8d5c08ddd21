"""Yosys and ABC as the wheel ``pyosys`` has them: machine code, which needs no compilation first as WebAssembly does.

Yosys ends its process with its first error, so each script has a process of its own.
"""

import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from weft.tb.sim.flow.tools import MissingSimulator

PACKAGE = "pyosys"
_RUN = """
import resource, sys
from pyosys import libyosys
libyosys.run_pass(sys.argv[1], libyosys.Design())
for file in sys.argv[2:]:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    open(file, "w").write(str(sum(usage.ru_utime + usage.ru_stime for usage in usages)))
"""


def version():
    """Of the Yosys that lints, proves and synthesises; not the one that writes the Verilog.

    Raises
    ------
    MissingSimulator
        If it is not installed.
    """
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        raise MissingSimulator(f"Yosys is not installed: pip install {PACKAGE}") from None


def yosys(script, spent=None):
    """The command that runs a Yosys script; CPU seconds of it and what it starts go into the file ``spent``."""
    return [sys.executable, "-c", _RUN, script, *([spent] if spent else [])]


def abc(script):
    """The command that runs an ABC script, with no settings of the user's."""
    return [str(Path(find_spec(PACKAGE).origin).with_name("yosys-abc")), "-s", "-c", script]
