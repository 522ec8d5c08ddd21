"""Tests of cards that are removed or disabled by their hosts, with two RTL cards: see ``outage_cases``."""

from pathlib import Path

import pytest

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text


@pytest.mark.parametrize("case", ["bus_master_cleared", "bus_master_cleared_briefly", "hot_reset",
                                  "surprise_removal_of_a_sender", "surprise_removal_of_a_receiver"])
def test_removed_card_ends_pending_requests(case):
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run",
             cases=Path(__file__).with_name("outage_cases.py"), tests=rf"\.{case}$", timeout_s=590)
