"""Tests of flow control with two RTL cards: see ``pause_cases``."""

from pathlib import Path

import pytest

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, cards_name, two_cards_text


@pytest.mark.parametrize("mac_clock", [False, True], ids=["one clock", "two clocks"])
@pytest.mark.parametrize("case", [
    "drops_without", "nothing_is_dropped", "nothing_is_dropped_both_ways", "a_deaf_peer_does_no_harm",
    "a_liar_does_not_hold_the_card", "what_is_no_pause_does_nothing"])
def test_flow_control(case, mac_clock):
    card = preset("test").with_(mac_clock=mac_clock)
    simulate(verilog=two_cards_text(card), top=TOP, name=cards_name(card), sim="verilator", optimize="run",
             cases=Path(__file__).with_name("pause_cases.py"), tests=rf"\.{case}$", timeout_s=590)
