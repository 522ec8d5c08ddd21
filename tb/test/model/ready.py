"""Machine code of an engine, compiled once by the first process that needs it."""

import functools

from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.tools import locked


@functools.cache
def compile_once(result):
    """Compile the engine of the module ``result``, or wait for the process that does.

    That takes about half a minute of processor time, and none if the code is cached.
    """
    with locked(BUILD_ROOT / ".locks" / result.__name__):
        result.compile_engine()
