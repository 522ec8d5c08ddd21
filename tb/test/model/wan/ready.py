"""The engine's machine code, made once by whoever comes first."""

import functools

from weft.model.wan import result
from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.tools import locked


@functools.cache
def compile_engine():
    """Compile, or wait for who does: about half a minute of processor time, and nothing once it is kept."""
    with locked(BUILD_ROOT / ".locks/wan"):
        result.compile_engine()
