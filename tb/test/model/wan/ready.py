"""The engine's machine code, compiled once by the first process that needs it."""

import functools

from weft.model.wan import result
from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.tools import locked


@functools.cache
def compile_engine():
    """Compile, or wait for the process that does: about half a minute of processor time, nothing if it is cached."""
    with locked(BUILD_ROOT / ".locks/wan"):
        result.compile_engine()
