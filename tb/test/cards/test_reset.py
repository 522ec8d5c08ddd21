"""Tests of card resets with outstanding work, with two RTL cards: see ``reset_cases``."""

from pathlib import Path

import pytest

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text


@pytest.mark.parametrize("case", ["nodes_in_flight", "payload_in_flight", "function_reset"])
def test_reset_in_flight(case):
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run",
             cases=Path(__file__).with_name("reset_cases.py"), tests=rf"\.{case}$", timeout_s=590)
