"""Tests of hosts that misbehave, with two RTL cards: see ``fault_cases``."""

from pathlib import Path

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text


def test_unreadable_payload_affects_its_qp_only():
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run",
             cases=Path(__file__).with_name("fault_cases.py"), timeout_s=590)
