"""Tests of the special cases of ``crossing_cases`` with two RTL cards."""

from pathlib import Path

import pytest

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text

CASES = [
    "psn_wraps", "psn_passes_half", "rings_wrap", "second_and_third_loss", "tail_and_probe_lost",
    "acknowledgements_lost", "loss_reports_lost", "odd_sizes", "empty_file", "rough_in_both_directions",
    "back_pressure",
    "completions_split"]


def run(case, sim):
    simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim=sim, optimize="run",
             cases=Path(__file__).with_name("crossing_cases.py"), tests=rf"\.{case}$", timeout_s=590)


@pytest.mark.parametrize("case", CASES)
def test_case(case):
    run(case, "verilator")


@pytest.mark.parametrize("sim", ["icarus", "verilator"])
def test_short_transfer_with_a_loss(sim):
    run("short", sim)
