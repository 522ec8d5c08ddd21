"""Tests of flow control with two RTL cards: see ``pause_cases``."""

from pathlib import Path

import pytest

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, cards_name, two_cards_text


@pytest.mark.parametrize("mac_clock", [False, True], ids=["one clock", "two clocks"])
@pytest.mark.parametrize("case", [
    "frames_are_dropped_without_pauses", "nothing_is_dropped", "nothing_is_dropped_in_both_directions",
    "peer_that_ignores_pauses_does_no_harm",
    "forged_pauses_do_not_stop_the_card", "invalid_pauses_are_ignored"])
def test_flow_control(case, mac_clock):
    card = preset("test").with_(mac_clock=mac_clock)
    simulate(verilog=two_cards_text(card), top=TOP, name=cards_name(card), sim="verilator", optimize="run",
             cases=Path(__file__).with_name("pause_cases.py"), tests=rf"\.{case}$", timeout_s=590)
