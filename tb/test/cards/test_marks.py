"""Test of marks with two RTL cards: see ``marks_cases``."""

from pathlib import Path

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text


def test_marks_return_as_notifications():
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run",
             cases=Path(__file__).with_name("marks_cases.py"), tests=r"\.marks$", timeout_s=590)
