"""The two simulators, by name."""

from weft.tb.sim.flow.icarus import Icarus
from weft.tb.sim.flow.tools import BuildFailed, MissingSimulator
from weft.tb.sim.flow.verilator import Verilator

__all__ = ["SIMULATORS", "BuildFailed", "Icarus", "MissingSimulator", "Verilator", "tool"]

_TOOLS = {"icarus": Icarus, "verilator": Verilator}
SIMULATORS = list(_TOOLS)


def tool(sim):
    """Return the simulator called ``sim``.

    Raises
    ------
    ValueError
        If the name is unknown; the message lists the known names.
    """
    try:
        return _TOOLS[sim]
    except KeyError:
        raise ValueError(f"unknown simulator {sim!r}; choose one of {', '.join(SIMULATORS)}") from None
