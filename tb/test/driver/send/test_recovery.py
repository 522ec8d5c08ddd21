"""Two drivers over two functional cards and a link that loses, duplicates, reorders and damages frames."""

import os
import random

import pytest

from weft.driver.application.file_transfer import post_receives
from weft.driver.terms.enums import MTU, WCOpcode, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import abi, wire
from weft.model.link import LinkConfig
from weft.tb.sim.pair.functional_pair import close_and_check, lost_data, make_endpoints, make_pair, transfer

SEEDS = [int(s) for s in os.environ["WEFT_SEED"].split(",")] if os.environ.get("WEFT_SEED") else range(24)


def random_case(seed):
    rng = random.Random(seed)
    distance = rng.choice([1, 2, 4, 8, 16])
    links = [
        LinkConfig(
            loss=rng.choice([0.01, 0.05, 0.1, 0.2]),
            duplicate=rng.choice([0, 0.05, 0.2]),
            reorder=rng.choice([0, 0.05, 0.2]),
            corrupt=rng.choice([0, 0.02]),
            reorder_distance=distance,
            delay_ns=rng.choice([500, 5_000, 20_000]),
        )
        for _ in range(2)
    ]
    config = ContextConfig(
        ring_log2=rng.choice([2, 3, 4, 6, 8]),
        reorder_distance=distance + 1,
        retransmit_slack=distance + 1,
        node_age_ns=rng.choice([200, 2_000, 20_000]),
        probe_timeout_ns=100_000,
        extent_bytes=rng.choice([4096, 262_144]),
    )
    return rng, links, config


@pytest.mark.parametrize("seed", SEEDS)
def test_file_arrives_and_only_lost_packets_are_retransmitted(seed):
    rng, (forward, backward), config = random_case(seed)
    qps = 1 + seed % 8
    length = rng.choice([4_097, 50_000, 150_000, 300_000])
    start = [None, (1 << wire.PSN_BITS) - 10, 0, (1 << 23) - 3][seed % 4]
    pair = make_pair(config, seed=seed, forward=forward, backward=backward)
    ends = make_endpoints(
        pair, length, qps=qps, psns=None if start is None else [start] * qps, path_mtu=rng.choice(list(MTU))
    )
    data = rng.randbytes(length)
    ends[0].mr.write(data)
    sent, _ = transfer(pair, ends, message_bytes=rng.choice([512, 1_000, 4_096, 65_536]))
    assert ends[1].mr.read(length, 0) == data
    again = f"WEFT_SEED={seed} pytest tb/test/driver/send/test_recovery.py -k only_lost"
    refused = pair.devices[1].card.counters["drop_buffer_full"]
    if not refused:
        assert sent.get("sender_retransmissions", 0) == lost_data(pair.links[0]), again
    assert pair.devices[1].card.counters["drop_not_in_node"] == 0, again
    close_and_check(pair, ends)


def test_every_kind_of_loss_occurs():
    """The random cases cover every kind of lost frame and every way to recover."""
    lost, used = set(), set()
    all_lost = {
        wire.Opcode.WRITE_ONLY,
        wire.Opcode.WRITE_ONLY_IMM,
        wire.Opcode.RETX_WRITE,
        wire.Opcode.ACKNOWLEDGE,
        wire.Opcode.LOSS_REPORT,
        wire.Opcode.PROBE,      # a transfer sends two or three
    }
    all_used = {"sender_probes", "sender_report_requests", "receiver_residue", "receiver_repeated_reports"}
    for seed in range(40):
        _, _, config = random_case(seed)
        pair, chances = make_pair(config, seed=seed), random.Random(seed)

        def drop(frame, chances=chances):
            gone = chances.random() < 0.15
            if gone:
                lost.add(frame[wire.BTH_OFFSET])
            return gone

        for link in pair.links:
            link.drop = drop
        ends = make_endpoints(pair, 200_000, qps=2)
        ends[0].mr.write(bytes(200_000))
        stats = transfer(pair, ends, message_bytes=10_000)
        used |= {name for s in stats for name, n in s.items() if n}
        if lost >= all_lost and used >= all_used:
            break
    assert lost >= all_lost
    assert used >= all_used


def test_lossless_transfer_has_no_nodes_and_no_probes():
    pair = make_pair(forward=LinkConfig(delay_ns=10_000))
    ends = make_endpoints(pair, 500_000, qps=4)
    ends[0].mr.write(random.Random(1).randbytes(500_000))
    sent, received = transfer(pair, ends)
    assert "sender_retransmissions" not in sent and "sender_probes" not in sent and "receiver_holes" not in received
    assert pair.devices[1].card.counters["nodes_sealed"] == 0
    assert sent["nanoseconds"] < 500_000 * 8 / 90 + 3 * 20_000  # near line rate
    close_and_check(pair, ends)


def test_late_originals_count_as_packets():
    """The scoreboard of the RTL counts in the same way."""
    late = 0
    for seed in range(3):
        lossy = LinkConfig(loss=0.02, reorder=0.2, duplicate=0.05, corrupt=0.02, reorder_distance=8)
        pair = make_pair(ContextConfig(reorder_distance=1, retransmit_slack=9), forward=lossy, seed=seed)
        ends = make_endpoints(pair, 200_000, qps=2)
        ends[0].mr.write(bytes(200_000))
        transfer(pair, ends)
        there, here = (device.card.counters for device in pair.devices)
        marked = there["tx_packets"] - there["tx_retransmissions"] - here["holes"]
        assert here["rx_packets"] == marked + here["rx_retransmissions"] + here["rx_late_originals"]
        late += here["rx_late_originals"]
    assert late > 10


def test_both_directions_at_once():
    lossy = LinkConfig(loss=0.05, reorder=0.05, duplicate=0.05, reorder_distance=2)
    pair = make_pair(ContextConfig(reorder_distance=3, retransmit_slack=3), forward=lossy, seed=5)
    ends = make_endpoints(pair, 100_000, qps=4)
    data = [random.Random(i).randbytes(50_000) for i in range(2)]
    for end, d in zip(ends, data, strict=True):
        end.mr.write(d)
        post_receives(end)
    done = []

    def both(i):
        def run():
            me, you = ends[i], ends[1 - i]
            count = 0
            for n, qp in enumerate(me.qps):
                part = n * 12_500
                wr = SendWR(
                    wr_id=n,
                    sg=[SGE(me.mr.buf + part, 12_500, me.mr.lkey)],
                    opcode=WROpcode.RDMA_WRITE_WITH_IMM,
                    imm_data=n,
                )
                wr.set_wr_rdma(you.mr.rkey, you.mr.buf + 50_000 + part)
                qp.post_send(wr)
            while count < 8:
                for wc in me.cq.wait(8):
                    assert wc.status is WCStatus.SUCCESS
                    count += 1
            done.append(i)
            while len(done) < 2:
                me.context.progress()
                me.context.wait(50_000)

        return run

    pair.run(both(0), both(1))
    assert ends[0].mr.read(50_000, 50_000) == data[1] and ends[1].mr.read(50_000, 50_000) == data[0]
    close_and_check(pair, ends)


@pytest.mark.parametrize("seed", range(6))
def test_completions_are_unique_and_in_order(seed):
    lossy = LinkConfig(loss=0.1, duplicate=0.1, reorder=0.1, reorder_distance=3)
    pair = make_pair(ContextConfig(reorder_distance=4, retransmit_slack=4), forward=lossy, seed=seed)
    ends = make_endpoints(pair, 40_000, window=64)
    ends[0].mr.write(random.Random(seed).randbytes(40_000))
    total, finished = 60, []
    lengths = [[1, 300, 1_023, 600, 1_750, 0][n % 6] for n in range(total)]
    places = [sum(lengths[:n]) for n in range(total)]

    def sending():
        qp, end, sent, got = ends[0].qps[0], ends[0], 0, []
        while len(got) < total:
            while sent < total and qp.sender.outstanding < 20:
                wr = SendWR(
                    wr_id=sent,
                    sg=[SGE(end.mr.buf + places[sent], lengths[sent], end.mr.lkey)],
                    imm_data=sent,
                    opcode=WROpcode.RDMA_WRITE_WITH_IMM if sent % 4 else WROpcode.RDMA_WRITE,
                )
                wr.set_wr_rdma(ends[1].mr.rkey, ends[1].mr.buf + places[sent])
                qp.post_send(wr)
                sent += 1
            got += end.cq.wait(8)
        finished.append(True)
        return got

    def receiving():
        qp, got = ends[1].qps[0], []
        posted = 0
        while not finished:
            if posted < total and len(got) >= posted - 2:
                qp.post_recv(RecvWR(wr_id=posted))
                posted += 1
                continue
            pair.contexts[1].progress()
            got += ends[1].cq.take(8)[1]
            if not got or len(got) < posted - 2:
                pair.contexts[1].wait(20_000)
        return got

    ends[1].qps[0].cap.max_recv_wr = 8
    sent, received = pair.run(sending, receiving)
    assert [w.wr_id for w in sent] == list(range(total)) and all(w.status is WCStatus.SUCCESS for w in sent)
    assert [(w.imm_data, w.byte_len) for w in received] == [(n, lengths[n]) for n in range(total) if n % 4]
    assert all(w.opcode is WCOpcode.RECV_RDMA_WITH_IMM for w in received)
    assert ends[1].mr.read(sum(lengths), 0) == ends[0].mr.read(sum(lengths), 0)
    close_and_check(pair, ends)


def test_reused_qpn_ignores_old_frames():
    lossy = LinkConfig(loss=0.1, duplicate=0.1, reorder_distance=1)
    pair = make_pair(forward=lossy, seed=8)
    for round_ in range(20):
        ends = make_endpoints(pair, 20_000, qps=2)
        data = random.Random(round_).randbytes(20_000)
        ends[0].mr.write(data)
        transfer(pair, ends, message_bytes=3_000)
        assert ends[1].mr.read(20_000, 0) == data
        for end in ends:
            end.close()
    for context in pair.contexts:
        assert context.knitting.check()["free"] == context.knitting.total_blocks


def test_small_pool_only_slows_down():
    """Dozens of nodes are needed at a time, and there are 16 blocks for 4 QPs."""
    config = ContextConfig(extent_bytes=16 * abi.BLOCK_BYTES, max_extents=1, node_age_ns=100)
    pair = make_pair(config, forward=LinkConfig(loss=0.2, delay_ns=20_000), seed=2)
    ends = make_endpoints(pair, 400_000, qps=4, path_mtu=MTU.MTU_256)
    data = random.Random(0).randbytes(400_000)
    ends[0].mr.write(data)
    sent, received = transfer(pair, ends)
    assert ends[1].mr.read(400_000, 0) == data
    assert received["receiver_pool_waits"]
    assert pair.contexts[1].knitting.low_water <= 4
    assert sent["sender_retransmissions"] == lost_data(pair.links[0])
    close_and_check(pair, ends)


def test_pool_grows():
    config = ContextConfig(extent_bytes=16 * abi.BLOCK_BYTES, max_extents=8, node_age_ns=100)
    pair = make_pair(config, forward=LinkConfig(loss=0.2, delay_ns=50_000), seed=2)
    ends = make_endpoints(pair, 400_000, qps=4, path_mtu=MTU.MTU_256)
    ends[0].mr.write(bytes(400_000))
    transfer(pair, ends)
    assert len(pair.contexts[1].knitting.extents) > 1
    close_and_check(pair, ends)


def test_long_path_recovers_by_probes():
    """Three of ten frames are lost in both directions, and only probes find the last losses.

    The time-out of the verbs, many round trips here, limits the retries and does not delay repetitions.
    """
    rtt_ns, round_trips, probes = 924_000, 0, 0
    for seed in range(6):
        lossy = LinkConfig(delay_ns=rtt_ns // 2, loss=0.3)
        pair = make_pair(ContextConfig(probe_timeout_ns=3 * rtt_ns, ring_log2=8), forward=lossy, seed=seed)
        ends = make_endpoints(pair, 300_000, timeout=12)   # 16.8 ms, 18 round trips
        data = random.Random(seed).randbytes(300_000)
        ends[0].mr.write(data)
        sent, _ = transfer(pair, ends)
        assert ends[1].mr.read(300_000, 0) == data
        round_trips += sent["nanoseconds"] / rtt_ns
        probes += sent.get("sender_probes", 0)
        close_and_check(pair, ends)
    assert probes >= 20 and round_trips / probes < 6, (round_trips, probes)
