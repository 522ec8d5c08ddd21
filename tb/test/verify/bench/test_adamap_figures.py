"""Tests of the basis of the Adamap subsystem's figures: bits of a netlist, list lengths, losses and their nodes."""

import random
from itertools import pairwise

import pytest

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.model.functional.node import Node
from weft.tb.sim.flow import figures
from weft.tb.test.verify.bench.command import bench
from weft.tb.verify.bench import adamap_memory
from weft.tb.verify.bench.adamap_interleaved import CASES, LINE_STRIDE, MATCHES, RecoveringQp, place
from weft.tb.verify.bench.adamap_memory import qp_table
from weft.tb.verify.bench.losses import BATCH_PACKETS, FIRST_PSN, WORKLOADS, batches, nodes_of
from weft.tb.verify.bench.matched_lists import HOLES, PreparedList, in_turn
from weft.tb.verify.bench.storage import storage


def test_a_memory_counts_once_or_once_for_each_read_port():
    params = preset("test")
    once = storage(qp_table, params, readers=3)
    copied = storage(qp_table, params, readers=3, copies=True)
    assert once.total() % params.qps == 0 and once.total() > 0
    assert copied.total() == 3 * once.total()
    doubled = storage(qp_table, params.with_(qps=2 * params.qps), readers=3).total() / 2
    assert doubled == once.total() - params.qps, "an index of one bit more leaves the generation one less"


def test_subsystem_memory_is_within_its_limit_and_as_in_the_model(monkeypatch, tmp_path):
    rows, merge_report = [], figures.merge_report

    def kept(found, *arguments, **options):
        rows.extend(found)
        merge_report(found, *arguments, **options)

    monkeypatch.setattr(adamap_memory, "PRESETS", ("test",))
    monkeypatch.setattr(figures, "merge_report", kept)
    found = bench(monkeypatch, tmp_path, "--only", "adamap-memory", "--only", "card-bytes")
    assert {"adamap_sram_bytes_per_qp", "model_card_bytes_qps"} <= {row["name"] for row in found}
    assert len([row for row in rows if row.at_most is not None]) == 6
    assert not [(row.name, row.value, row.at_most) for row in rows if row.missed]


@pytest.mark.parametrize("encoding", HOLES)
@pytest.mark.parametrize("length", [1, 9, 10, 50])
def test_list_made_on_demand_continues_at_its_end(encoding, length):
    made = PreparedList(encoding, length, qpn=2, generation=7, dense=5)
    nodes = [Node.unpack(made.block(made.first_line + k)) for k in range(length)]
    assert all(a.rsn + len(a.holes) == b.rsn for a, b in pairwise(nodes)) and nodes[0].rsn == 0
    assert {node.encoding for node in nodes} == {encoding}
    assert made.block(made.first_line + length) == made.block(made.first_line - 1) == bytes(abi.BLOCK_BYTES)
    sent = made.packets(0, length)
    assert [rsn for *_, rsn in sent] == list(range(len(sent)))
    assert [psn for _, _, psn, _ in sent] == [psn for node in nodes for psn in node.psns]


def test_packets_of_several_lists_are_interleaved():
    assert in_turn([[1, 2], [3, 4]]) == [1, 3, 2, 4]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_nodes_hold_the_lost_packets(workload):
    lost = batches(workload, 300, random.Random(1))
    each = [at for batch in lost for at in batch]
    assert len(each) >= 300 and each == sorted(set(each))
    assert all(batch[-1] - batch[0] < BATCH_PACKETS for batch in lost)
    assert [psn for node in nodes_of(lost, 0, 1) for psn in node.psns] == [FIRST_PSN + at for at in each]


def test_no_node_is_adjacent_to_its_predecessor():
    case = max((case for case in CASES if case.card == "test"), key=lambda case: case.qps)
    qps = [RecoveringQp(case, MATCHES, qpn, 1, random.Random(qpn)) for qpn in range(case.qps)]
    blocks = place(qps, random.Random(1))
    assert len(blocks) == sum(len(qp.nodes) for qp in qps)
    for qp in qps:
        assert all(abs(a - b) >= LINE_STRIDE for a, b in pairwise(qp.lines))
        assert [Node.unpack(blocks[line]).rsn for line in qp.lines[:-1]] == [node.rsn for node in qp.nodes]
        assert not any(abi.NODE.unpack(blocks[line]).next_adjacent for line in qp.lines[:-1])
        assert qp.next_packet() == (qp.qpn, 1, qp.psns[0], 0) and qp.next_packet()[3] == 1
