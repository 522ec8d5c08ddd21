"""Yosys and ABC of the wheel ``pyosys``: native code, which starts faster than WebAssembly.

Yosys ends its process at the first error, so each script runs in a separate process.
"""

import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from weft.tb.sim.flow import process
from weft.tb.sim.flow.build import tail
from weft.tb.sim.flow.failure import Failure
from weft.tb.sim.flow.tools import MissingTool

PACKAGE = "pyosys"
_RUN = """
import resource, sys
from pyosys import libyosys
libyosys.run_pass(sys.argv[1], libyosys.Design())
for file in sys.argv[2:]:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    open(file, "w").write(str(sum(usage.ru_utime + usage.ru_stime for usage in usages)))
"""


class SynthesisFailed(Failure):
    """A synthesis tool ended early. The message has the end of its output."""


def version():
    """Return the version of the Yosys that lints, proves and synthesizes; another one writes the Verilog.

    Raise ``MissingTool`` if it is not installed.
    """
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        raise MissingTool(f"Yosys is not installed: pip install {PACKAGE}") from None


def yosys(script, spent=None):
    """Return the command that runs a Yosys script; it writes its CPU seconds, children included, to file ``spent``."""
    return [sys.executable, "-c", _RUN, script, *([spent] if spent else [])]


def run(script, where, design, spent=None):
    """Run a Yosys script on ``design`` in folder ``where``, which gets the output as ``yosys.log``.

    Raises
    ------
    SynthesisFailed
    """
    log = where / "yosys.log"
    with open(log, "wb") as out:
        status = process.run(yosys(script, spent), cwd=where, out=out)
    if status:
        raise SynthesisFailed(f"{design}: Yosys ended with status {status} and its output ends with\n{tail(log)}")


def abc(script):
    """Return the command that runs an ABC script without the user's settings."""
    return [str(Path(find_spec(PACKAGE).origin).with_name("yosys-abc")), "-s", "-c", script]
