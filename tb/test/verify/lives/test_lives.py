"""Tests of the churn of Adamap nodes: no leaked block, no accepted stale packet, and the harness detects both."""

import contextlib

import pytest

from weft.driver.engine.qp_table import QpTable
from weft.model.functional.receive_path import ReceivePath
from weft.tb.verify.lives.functional import NodeLives, live
from weft.tb.verify.lives.rtl_cases import live_in_rtl

LIVES = 600


def test_nodes_live_and_die():
    sums = live_in_rtl(LIVES)
    assert sums["lives"] >= LIVES and sums["leaks"] == sums["stale_accepts"] == 0, sums


def test_a_card_that_forgets_generations_is_caught():
    sums = live_in_rtl(LIVES, forgetful=True)
    assert sums["stale_accepts"], sums


def test_lives_on_a_functional_card():
    sums = live(5_000, seed=3)
    assert sums["leaks"] == sums["stale_accepts"] == 0, sums
    for name in ("matched", "dropped", "stale_reports", "stale_refused"):
        assert sums[name], f"{name} did not occur"


@pytest.mark.parametrize(("owner", "check"), [
    (ReceivePath, "_live"),    # the card's check of packets
    (QpTable, "find"),         # the driver's check of reports
])
def test_a_check_that_lets_the_dead_in_is_caught(monkeypatch, owner, check):
    monkeypatch.setattr(owner, check, {
        "_live": lambda path, header, generation: path.card.tables.qps.get(header.dest_qp),
        "find": lambda table, index, generation: table._qps.get(index)}[check])
    lives = NodeLives(seed=3)
    while not lives.sums["stale_accepts"]:
        assert lives.count < 20_000, "the harness does not see what is stale"
        with contextlib.suppress(RuntimeError):     # the driver may fail because of it, too
            lives.step()
