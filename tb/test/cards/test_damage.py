"""Tests of corrupted memory of a card's host, with two RTL cards: see ``damage_cases``."""

from pathlib import Path

import pytest

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text


@pytest.mark.parametrize("case", ["descriptors", "inline_descriptors", "page_lists", "nodes", "commands"])
def test_memory_damage_affects_its_owners_only(case):
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator", optimize="run",
             cases=Path(__file__).with_name("damage_cases.py"), tests=rf"\.{case}$", timeout_s=590)
