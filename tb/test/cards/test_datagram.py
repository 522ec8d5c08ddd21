"""Tests of datagrams with two RTL cards: see ``datagram_cases``."""

from pathlib import Path

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text


def test_datagrams_between_queue_pairs():
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run",
             cases=Path(__file__).with_name("datagram_cases.py"), timeout_s=300)
