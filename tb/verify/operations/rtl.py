"""Random operations over two simulated cards."""

from pathlib import Path

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text


def run_operations(count, *, seed=None, timeout_s=590):
    """Simulate ``count`` operations; ``AssertionError`` if one is wrong."""
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run",
             cases=Path(__file__).with_name("rtl_cases.py"), env={"WEFT_OPERATIONS": str(count)}, seed=seed,
             timeout_s=timeout_s)
