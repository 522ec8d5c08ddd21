"""The two simulators by name."""

from weft.tb.sim.flow.icarus import Icarus
from weft.tb.sim.flow.tools import BuildFailed, MissingSimulator
from weft.tb.sim.flow.verilator import Verilator

__all__ = ["SIMULATORS", "BuildFailed", "Icarus", "MissingSimulator", "Verilator", "tool"]

_TOOLS = {"icarus": Icarus, "verilator": Verilator}
SIMULATORS = list(_TOOLS)


def tool(sim):
    """The simulator called ``sim``.

    Raises
    ------
    ValueError
        With the known names, if there is none.
    """
    try:
        return _TOOLS[sim]
    except KeyError:
        raise ValueError(f"unknown simulator {sim!r}; choose one of {', '.join(SIMULATORS)}") from None
