"""The two simulators, by name."""

from weft.tb.sim.flow.icarus import Icarus
from weft.tb.sim.flow.tools import MissingTool
from weft.tb.sim.flow.verilator import Verilator

__all__ = ["SIMULATORS", "MissingTool", "Verilator", "tool"]

_TOOLS = {"icarus": Icarus, "verilator": Verilator}
SIMULATORS = list(_TOOLS)


def tool(sim):
    """Return the simulator called ``sim``; raise ``ValueError`` with the known names if the name is unknown."""
    if sim not in _TOOLS:
        raise ValueError(f"unknown simulator {sim!r}; choose one of {', '.join(SIMULATORS)}")
    return _TOOLS[sim]
