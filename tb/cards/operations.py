"""So many random operations over two real cards."""

from pathlib import Path

from weft.hdl.params import preset
from weft.tb.flow.simulate import simulate
from weft.tb.world.two_cards import TOP, two_cards_text


def run_operations(count, *, seed=None, timeout_s=590):
    """Simulate; ``AssertionError`` if anything is not as it must be. See :mod:`weft.tb.cards.operation_cases`."""
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run",
             cases=Path(__file__).with_name("operation_cases.py"), env={"WEFT_OPERATIONS": str(count)}, seed=seed,
             timeout_s=timeout_s)
