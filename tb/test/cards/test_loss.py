"""Tests of loss patterns and of pools that are too small with two RTL cards: see ``loss_cases``."""

import json
from pathlib import Path

import pytest

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text
from weft.tb.verify.bench.small_pools import guaranteed_blocks

# the last retransmission is sent alone, and would meet a burst of 64 packets 64 times
SEED_OF_A_LONELY_PACKET = 1912771618


def run(case, seed=None, **environment):
    return simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator",
                    optimize="run", cases=Path(__file__).with_name("loss_cases.py"), tests=rf"\.{case}$", timeout_s=590,
                    seed=seed, env=environment)


@pytest.mark.parametrize("case", ["comb", "holes_reported_at_once", "bursts_of_8", "bursts_of_64", "burst_of_512",
                                  "outages", "lost_repeatedly"])
def test_each_loss_is_recovered_once_without_a_timer(case):
    run(case)


def test_burst_ends_in_a_silent_interval():
    """A burst ends in a silent interval, as between retransmissions of one packet, or the sender would give up."""
    run("bursts_of_64", seed=SEED_OF_A_LONELY_PACKET)


def test_too_few_blocks_make_spans():
    """1/32 of the blocks that the transfer uses when it has enough, rounded up, and the guaranteed minimum."""
    peak, least = json.loads((run("enough_blocks") / "peak.json").read_text()), guaranteed_blocks(1)
    share = -(-peak // 32)
    assert share > least
    for blocks in (share, least):
        run("few_blocks", WEFT_BLOCKS=str(blocks))
