"""Knitting buffers of any size over functional cards: every byte arrives and every block is freed."""

import os
import random

import pytest

from weft.driver.terms.enums import MTU, WCStatus, WROpcode
from weft.driver.verbs.context import Context, ContextConfig
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import abi, wire
from weft.model.functional.host import FunctionalDevice
from weft.model.link import LinkConfig
from weft.model.loop import EventLoop
from weft.tb.sim.pair.functional_pair import close_and_check, lost_data, make_endpoints, make_pair, transfer
from weft.tb.verify.bench.small_pools import SHARES, guaranteed_blocks, pools, squeezed
from weft.tb.verify.churn.functional import NodeChurn, run_churn

SEEDS = [int(s) for s in os.environ["WEFT_SEED"].split(",")] if os.environ.get("WEFT_SEED") else range(2)
SEEDS_RANDOM = SEEDS if os.environ.get("WEFT_SEED") else range(6)
SMALL = {"length": 300_000, "delay_ns": 30_000}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_pool_carries_every_transfer(seed):
    sizes = pools(seed=seed, **SMALL)
    assert list(sizes) == list(SHARES) and sizes["1"] > 4 * sizes["0"] == 4 * guaranteed_blocks(2)
    nanoseconds = {}
    for name, blocks in sizes.items():
        sent, received, used, _ = squeezed(blocks, seed=seed, **SMALL)
        assert used <= blocks
        assert name == "1" or received["receiver_waited"]
        nanoseconds[name] = sent["nanoseconds"]
    assert nanoseconds["0"] < 4 * nanoseconds["1"], "holes that wait should share nodes"


@pytest.mark.parametrize("seed", SEEDS)
def test_peer_stops_and_resumes_with_too_many_waiting_holes(seed):
    """This holds even if every other receive-limit frame is lost."""
    noticed = []

    def lose_notices(pair):
        def drop(frame):
            if frame[wire.BTH_OFFSET] != wire.Opcode.RECEIVE_LIMIT:
                return False
            noticed.append(wire.LIMH.unpack(frame[wire.RETH_OFFSET:]).limited)
            return len(noticed) % 2 == 1

        pair.links[1].drop = drop

    sent, received, _, pair = squeezed(guaranteed_blocks(2), seed=seed, waiting_runs_max=12, lookers=[lose_notices],
                                       **SMALL)
    assert received["receiver_coarsened"] and received["receiver_limits"] and sent["sender_limits"]
    assert set(noticed) == {0, 1}
    # A span is retransmitted as a whole, but never more than everything from the oldest hole on.
    again, lost = sent["sender_retransmissions"], lost_data(pair.links[0])
    assert lost <= again <= lost + received["receiver_coarsened"]


@pytest.mark.parametrize("seed", SEEDS_RANDOM)
def test_transfers_succeed_with_any_pool_and_loss(seed):
    rng = random.Random(seed)
    qps = rng.choice([1, 2, 4, 8])
    squeezed(guaranteed_blocks(qps) + rng.choice([0, 0, 1, 3, 10]), seed=seed, qps=qps,
             length=rng.choice([60_000, 150_000]), waiting_runs_max=rng.choice([1, 2, 8, 40, 4096]),
             loss=rng.choice([0.05, 0.2, 0.4]), delay_ns=rng.choice([1_000, 20_000, 60_000]))


def test_limited_sender_sends_nothing_new():
    """The test sets the receiver's limit in the middle of a transfer, and lifts it later."""
    pair = make_pair(ContextConfig(probe_timeout_ns=100_000, ring_log2=3, chunk_bytes=2_048))
    ends = make_endpoints(pair, 600_000, path_mtu=MTU.MTU_256, window=32)
    receiver, sender = ends[1].qps[0].receiver, ends[0].qps[0].sender
    seen = {}

    def stop():
        receiver._set_limit(sender.queue.sent_psn + 10)
        ends[1].context.engine.mark_active(ends[1].qps[0].engine)
        pair.loop.call_in(60_000, lambda: seen.update(limit=sender.queue.limit, sent=sender.queue.sent_psn))
        pair.loop.call_in(900_000, go)

    def go():
        seen["later"] = sender.queue.sent_psn
        receiver._set_limit(None)
        ends[1].context.engine.mark_active(ends[1].qps[0].engine)

    pair.loop.call_in(20_000, stop)
    ends[0].mr.write(bytes(range(250)) * 2_400)
    sent, _ = transfer(pair, ends)
    assert ends[1].mr.read(600_000, 0) == bytes(range(250)) * 2_400
    assert seen["later"] == seen["sent"] >= seen["limit"] and sender.queue.limit is None
    assert sent["sender_probes"] >= 2 and "sender_retransmissions" not in sent
    close_and_check(pair, ends)


def test_extents_come_and_go_with_the_load():
    config = ContextConfig(extent_bytes=16 * abi.BLOCK_BYTES, max_extents=8, node_age_ns=100)
    pair = make_pair(config, forward=LinkConfig(loss=0.2, delay_ns=50_000), seed=2)
    ends = make_endpoints(pair, 400_000, qps=4, path_mtu=MTU.MTU_256)
    ends[0].mr.write(bytes(400_000))
    transfer(pair, ends)
    context, card = pair.contexts[1], pair.devices[1].card
    knitting = context.knitting
    assert knitting.counts["grown"] > 1
    assert not knitting.changing
    extents, pages = len(knitting.extents), len(pair.devices[1].memory._pages)   # of one page each
    assert extents > 1
    ends[0].mr.write(bytes([7]) * 400_000)
    transfer(pair, ends)
    assert ends[1].mr.read(400_000, 0) == bytes([7]) * 400_000
    for qp in ends[1].qps:
        qp.reset()
    for _ in range(40):
        context.progress()
        pair.loop.run(pair.loop.now_ns + 500_000)
    grown = knitting.counts["grown"]
    assert len(knitting.extents) == len(card.tables.extents) == 1 and knitting.counts["shrunk"] == grown - 1
    assert len(pair.devices[1].memory._pages) == pages - (extents - 1)
    for (qp, peer) in zip(ends[1].qps, ends[0].connections, strict=True):
        qp.connect(peer, path_mtu=MTU.MTU_256)
    close_and_check(pair, ends)


def test_lists_lie_in_adjacent_blocks():
    pair = make_pair(ContextConfig(node_age_ns=100), forward=LinkConfig(loss=0.2, delay_ns=50_000), seed=2)
    ends = make_endpoints(pair, 400_000, qps=8, path_mtu=MTU.MTU_256)
    ends[0].mr.write(bytes(400_000))
    transfer(pair, ends)
    counts = pair.contexts[1].knitting.counts
    assert counts["links"] > 100 and counts["adjacent"] >= 0.9 * counts["links"]
    close_and_check(pair, ends)


# -------------------------------------------------------------------------------------------- lifecycle


def test_node_churn_leaks_nothing_and_mixes_nothing():
    sums = run_churn(10_000, seed=3)
    assert sums["leaks"] == sums["stale_accepts"] == 0
    for name in ("dropped", "destroyed", "stale_reports", "stale_dropped", "grown", "shrunk", "waited", "coarsened",
                 "adjacent", "refused"):
        assert sums[name], f"{name} did not occur"


def test_check_without_generations_is_detected():
    """The harness finds the faults it is made for."""
    churn = NodeChurn(seed=3)
    churn.generations = dict.fromkeys(range(churn.qps), 1)
    churn.create = lambda qpn, create=churn.create: (churn.generations.update({qpn: 0}), create(qpn))
    while churn.sums["retired"] < 5_000:
        try:
            churn.step()
        except RuntimeError:
            return   # a block of a former list was returned
    assert churn.finish()["stale_accepts"]


def test_destroying_qps_with_linked_nodes_frees_all_blocks():
    pair = make_pair(ContextConfig(node_age_ns=100), forward=LinkConfig(delay_ns=50_000), seed=4)
    pair.links[0].drop = lambda frame: frame[wire.BTH_OFFSET] in wire.RETX_OPCODES or frame[-1] % 8 == 0
    for _ in range(3):
        ends = make_endpoints(pair, 200_000, qps=4, path_mtu=MTU.MTU_256)
        for qp in ends[0].qps:
            post_write(ends, qp, 200_000)
        context = pair.contexts[1]
        for _ in range(20):
            for c in pair.contexts:
                c.progress()
            pair.loop.run(pair.loop.now_ns + 5_000)
        assert context.knitting.check()["linked"] > 8
        for end in ends[::-1]:
            end.close()
        for _ in range(10):
            for c in pair.contexts:
                c.progress()
            pair.loop.run(pair.loop.now_ns + 50_000)
        assert context.knitting.check() == {"free": context.knitting.total_blocks, "linked": 0}
    assert pair.devices[1].card.counters["drop_unknown_qp"]


NODE = {"count": 1, "encoding": abi.Encoding.LIST, "base_psn": 0}


def test_reports_of_an_old_generation_change_nothing():
    pair = make_pair()
    ends = make_endpoints(pair, 4_096)
    context, qp = pair.contexts[1], ends[1].qps[0]
    old = {"qpn": qp.index, "generation": qp.generation}
    line, _ = qp.receiver.holes._chain.link(NODE | old)
    qp.reset()
    qp.connect(ends[0].connections[0])
    before = context.knitting.check()
    body = abi.NODE.pack(**old | NODE | {"base_psn": qp.attr.rq_psn})
    for entry in (
        abi.REPORT_RETIRE.pack(kind=abi.ReportKind.RETIRE, line=line, **old),
        abi.REPORT_NODE.pack(kind=abi.ReportKind.NODE, node=int.from_bytes(body[8:], "little")),
        abi.REPORT_EVENT.pack(kind=abi.ReportKind.QP_ERROR, reason=abi.Reason.BAD_NODE, **old),
    ):
        pair.devices[1].card.report(entry)
    context.progress()
    assert context.engine.reports.counts["stale"] == 3 and context.knitting.check() == before
    assert qp.receiver.holes.linked == 0 and qp.receiver.broken is None and not qp.receiver.holes.waits_for_blocks
    close_and_check(pair, ends)


def post_write(ends, qp, length, wr_id=0):
    wr = SendWR(wr_id=wr_id, sg=[SGE(ends[0].mr.buf, length, ends[0].mr.lkey)], opcode=WROpcode.RDMA_WRITE)
    wr.set_wr_rdma(ends[1].mr.rkey, ends[1].mr.buf)
    qp.post_send(wr)


@pytest.mark.parametrize("side", [0, 1])
def test_card_reset_in_flight_flushes_everything_and_the_card_works_again(side):
    lossy = LinkConfig(loss=0.1, delay_ns=20_000)
    pair = make_pair(ContextConfig(node_age_ns=100), forward=lossy, seed=6)
    ends = make_endpoints(pair, 200_000, qps=2, path_mtu=MTU.MTU_256, retry_cnt=1)
    for qp in ends[0].qps:
        for n in range(3):
            post_write(ends, qp, 200_000, n)
    for _ in range(30):
        for c in pair.contexts:
            c.progress()
        pair.loop.run(pair.loop.now_ns + 5_000)
    context = pair.contexts[side]
    generations = [qp.generation for qp in ends[side].qps]
    context.reset()
    uses = context.knitting.check()
    assert uses["free"] == context.knitting.total_blocks, uses
    if side == 0:
        _, wcs = ends[0].cq.poll(16)
        assert sorted(w.wr_id for w in wcs) == [0, 0, 1, 1, 2, 2]
        assert {w.status for w in wcs} == {WCStatus.WR_FLUSH_ERR}
    for end in ends:
        for qp in end.qps:
            qp.reset()
    pair.loop.run(pair.loop.now_ns + 200_000)
    while any(end.cq.poll(16)[0] for end in ends):
        pass
    assert all(qp.generation != g for qp, g in zip(ends[side].qps, generations, strict=True))
    # The memory regions and their keys stay valid.
    for end, peer in (ends, ends[::-1]):
        end.connect(peer.connections, path_mtu=MTU.MTU_256)
    data = bytes(range(200)) * 1_000
    ends[0].mr.write(data)
    transfer(pair, ends)
    assert ends[1].mr.read(200_000, 0) == data
    close_and_check(pair, ends)


def test_reset_of_an_idle_card():
    context = Context(FunctionalDevice(EventLoop()), mac=1, ip=2)
    context.reset()
    assert context.knitting.check()["free"] == context.knitting.total_blocks
    assert context.statistics()["tx_packets"] == 0
    context.close()
    assert not context.device.memory._pages
