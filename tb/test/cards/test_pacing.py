"""Test of paced QPs with two RTL cards: see ``pacing_cases``."""

from pathlib import Path

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text


def test_paced_qps_exchange_data_with_losses():
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-paced",
             sim="verilator", optimize="run", cases=Path(__file__).with_name("pacing_cases.py"), timeout_s=590)
