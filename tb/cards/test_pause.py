"""Flow control over two real cards: see ``pause_cases``."""

from pathlib import Path

import pytest

from weft.hdl.params import preset
from weft.tb.flow.simulate import simulate
from weft.tb.world.two_cards import TOP, two_cards_text


@pytest.mark.parametrize("case", ["drops_without", "nothing_is_dropped", "a_liar_does_not_hold_the_card",
                                  "what_is_no_pause_does_nothing"])
def test_flow_control(case):
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run",
             cases=Path(__file__).with_name("pause_cases.py"), tests=rf"\.{case}$", timeout_s=590)
