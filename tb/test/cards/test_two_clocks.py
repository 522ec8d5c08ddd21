"""Tests of cards whose MACs have separate clocks, all four unrelated: bad links, and resets during traffic.

The cases are those of cards with one clock, and ``two_clock_cases``.
"""

from pathlib import Path

import pytest

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, cards_name, two_cards_text


@pytest.mark.parametrize(("cases", "case"), [
    ("crossing", "rough_in_both_directions"),
    ("reset", "payload_in_flight"),
    ("reset", "function_reset"),
    ("outage", "hot_reset"),
    ("two_clock", "mac_resets"),
])
def test_two_clocks(cases, case):
    card = preset("test").with_(mac_clock=True)
    simulate(verilog=two_cards_text(card), top=TOP, name=cards_name(card), sim="verilator", optimize="run",
             cases=Path(__file__).with_name(f"{cases}_cases.py"), tests=rf"\.{case}$", timeout_s=590)
