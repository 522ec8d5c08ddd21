"""Card reset in flight, over two real cards: see ``bench_card_reset``."""

import pytest

from weft.hdl.params import preset
from weft.tb.sim import simulate
from weft.tb.two_cards import TOP, two_cards_text


@pytest.mark.parametrize("case", ["nodes_in_flight", "payload_in_flight"])
def test_reset_in_flight(case):
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run",
             bench="weft.tb.bench_card_reset", tests=rf"\.{case}$", timeout_s=590)
