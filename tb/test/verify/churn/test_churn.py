"""Tests of the churn of Adamap nodes: no leaked block, no accepted stale packet, and the harness detects both."""

import contextlib

import pytest

from weft.driver.engine.qp_table import QpTable
from weft.model.functional.receive_path import ReceivePath
from weft.tb.test.verify.bench.command import bench
from weft.tb.verify.churn import figures
from weft.tb.verify.churn.functional import NodeChurn, run_churn
from weft.tb.verify.churn.rtl_cases import churn_in_rtl

NODES = 600


def test_node_churn_in_the_rtl(monkeypatch, tmp_path):
    for name, value in (("RTL", NODES), ("FUNCTIONAL", 2 * NODES), ("RUNS", 1)):
        monkeypatch.setattr(figures, name, value)
    found = {row["name"]: row["value"] for row in bench(monkeypatch, tmp_path, "--only", "churn")}
    assert found["adamap_nodes_rtl"] >= NODES
    assert found["adamap_block_leaks"] == found["adamap_stale_accepts"] == 0


def test_card_without_generation_checks_is_detected():
    sums = churn_in_rtl(NODES, forgetful=True)
    assert sums["stale_accepts"], sums


def test_churn_on_a_functional_card():
    sums = run_churn(5_000, seed=3)
    assert sums["leaks"] == sums["stale_accepts"] == 0, sums
    for name in ("matched", "dropped", "stale_reports", "stale_dropped"):
        assert sums[name], f"{name} did not occur"


@pytest.mark.parametrize(("owner", "check"), [
    (ReceivePath, "_live"),    # the card's check of packets
    (QpTable, "find"),         # the driver's check of reports
])
def test_check_that_accepts_old_generations_is_detected(monkeypatch, owner, check):
    monkeypatch.setattr(owner, check, {
        "_live": lambda path, header, index, generation: path.card.tables.qps.get(index),
        "find": lambda table, index, generation: table._qps.get(index)}[check])
    churn = NodeChurn(seed=3)
    while not churn.sums["stale_accepts"]:
        assert churn.count < 20_000, "the harness does not see what is stale"
        with contextlib.suppress(RuntimeError):     # the driver may fail because of it, too
            churn.step()
