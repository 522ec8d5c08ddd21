"""WRITE and READ of the document's protocol: in order, once, whole, over good and bad links and real NIC rings."""

import os
import random
from dataclasses import replace

import pytest

from weft.driver.soft.ports import Pump, SimpleNicPort
from weft.driver.soft.raw.endpoint import Endpoint
from weft.driver.soft.raw.packet import ETHTYPE_RDMA, Flag, Opcode, parse
from weft.driver.soft.raw.qp import State, WorkRequest
from weft.driver.verbs.context import Context
from weft.model.functional.host import connected_pair, run_apps
from weft.model.link import LinkConfig
from weft.tb.test.driver.soft.hosts import BAD_LINK, MACS
from weft.tb.test.driver.soft.raw_pair import ALL, RawPair, all_good

SEEDS = [int(s) for s in os.environ["WEFT_SEED"].split(",")] if os.environ.get("WEFT_SEED") else range(1, 21)


def test_write_completes_with_the_ack():
    """Only the ACK of the peer completes a WRITE; posting returns at once."""
    pair = RawPair()
    assert pair.post(0, length=100) == 0 and not pair.frames
    pair.links[1].drop = lambda frame: True
    pair.run(lambda: len(pair.state(1).cq) == 1)
    pair.run(limit_ns=500_000)
    assert not pair.state(0).cq and list(pair.state(0).inflight) == [0]
    pair.links[1].drop = None
    [completion] = pair.done(0, 1)
    assert (completion.wr_id, completion.byte_len, completion.opcode) == (1, 100, Opcode.WRITE)
    assert not pair.state(0).inflight and not pair.mr[0].uses and pair.state(0).state is State.RTS


def test_write_is_placed_completed_and_acknowledged():
    pair = RawPair()
    pair.fill(0, b"from host 0", at=7)
    pair.post(0, length=11, at=7, to=1000, wr_id=5)
    assert all_good(pair.done(0, 1))
    assert bytes(pair.mr[1].data[998:1013]) == b"\0\0from host 0\0\0"
    [completion] = pair.poll(1)
    assert all_good([completion]) and (completion.wr_id, completion.byte_len) == (0, 11)
    [ack] = pair.sent(1)
    assert (ack.opcode, ack.seq, ack.dst_qp, ack.length) == (Opcode.ACK, 0, pair.qp[0][0], 0)


def test_remote_address_may_be_an_offset():
    pair = RawPair(size=1000)
    pair.fill(0, b"abc")
    for remote in (996, pair.mr[1].vaddr + 990):
        pair.post(0, length=3, remote_addr=remote)
        assert all_good(pair.done(0, 1))
    assert bytes(pair.mr[1].data[990:999]) == b"abc\0\0\0abc"


def test_read_returns_the_data_of_the_peer():
    pair = RawPair()
    data = random.Random(1).randbytes(10_000)
    pair.fill(1, data, at=33)
    pair.post(0, Opcode.READ, length=10_000, at=5, to=33)
    assert all_good(pair.done(0, 1)) and bytes(pair.mr[0].data[4:10_006]) == b"\0" + data + b"\0"
    assert not pair.poll(1), "a READ is not reported to the peer's program"
    reads, answers = pair.sent(0, Opcode.READ), pair.sent(1, Opcode.READ_RESP)
    assert len(reads) == len(answers) == 7 and not any(packet.payload for packet in reads)
    assert [(r.seq, r.length) for r in reads] == [(a.seq, a.length) for a in answers]


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.READ])
@pytest.mark.parametrize("length", [0, 1, 1459, 1460, 1461, 2920, 2921])
def test_fragments_of_a_large_request(opcode, length):
    """Every packet but the last is as large as the MTU allows, and has the flag MORE."""
    pair = RawPair()
    data = random.Random(length).randbytes(length)
    pair.fill(0 if opcode is Opcode.WRITE else 1, data)
    pair.post(0, opcode, length=length)
    [completion] = pair.done(0, 1)
    assert all_good([completion]) and completion.byte_len == length
    assert bytes(pair.mr[1].data[:length]) == bytes(pair.mr[0].data[:length]) == data
    packets = pair.sent(0)
    full = max(0, length - 1) // 1460
    assert [p.length for p in packets] == [1460] * full + [length - full * 1460]
    assert [bool(p.flags & Flag.MORE) for p in packets] == [True] * (len(packets) - 1) + [False]
    assert max(len(frame) for _, frame in pair.frames) <= 1514
    assert [c.byte_len for c in pair.poll(1)] == ([length] if opcode is Opcode.WRITE else [])


def test_a_batch_has_at_most_32_packets():
    """One call sends at most 32 packets of a queue pair, and then those of the next one."""
    pair = RawPair(qps=2, tx_queue=256)
    end = pair.ends[0]
    for qp in range(2):
        pair.post(0, length=50_000, qp=qp)
    assert end.rdma_process(0) == 0, "there is more to send"
    queues = [packet.src_qp for packet in map(parse, end.take_frames())]
    assert sorted(queues) == [0] * 32 + [1] * 32 and queues in ([0] * 32 + [1] * 32, [1] * 32 + [0] * 32)
    assert end.counts["full_batches"] == 2
    assert end.rdma_process(0) == end.timeout_ns and not end.take_frames(), "32 packets are in flight"
    assert end.counts["inflight_full"] == 2


def test_responses_open_the_window_at_once():
    """The message has more packets than the window; no packet waits for a time-out."""
    pair = RawPair(size=100_000)
    pair.post(0, length=100_000)
    assert all_good(pair.done(0, 1)) and len(pair.sent(0)) == 69 and pair.loop.now_ns < 100_000


def test_many_requests_complete_in_order_once():
    """Two hosts write to each other at the same time."""
    pair = RawPair()
    data = [random.Random(i).randbytes(30_000) for i in range(2)]
    for i in range(2):
        pair.fill(i, data[i])
        for n in range(30):
            assert pair.post(i, length=1000, at=1000 * n, to=30_000 + 1000 * n, wr_id=100 + n) == 0
    for i in range(2):
        done = pair.done(i, 60)
        assert all_good(done)
        assert [c.wr_id for c in done if c.wr_id] == list(range(100, 130))
        assert len([c for c in done if not c.wr_id]) == 30
        assert bytes(pair.mr[i].data[30_000:60_000]) == data[1 - i]


def test_early_packets_wait_in_the_queue():
    """The first packet is delayed: nothing executes before it, everything after it, and nothing is sent again."""
    pair = RawPair(link=LinkConfig(reorder_distance=5, reorder_max_ns=50_000))
    first = []
    pair.links[0].drop = lambda frame: not first and (first.append(frame) or True)
    for n in range(5):
        pair.post(0, length=10, to=10 * n, wr_id=n)
    pair.soon()
    assert sorted(pair.state(1).ooo_queue) == [1, 2, 3, 4] and not pair.state(1).cq and not pair.frames[5:]
    assert pair.ends[1].counts["out_of_order"] == pair.ends[1].buffers.used == 4
    pair.inject(1, first[0])
    assert [c.wr_id for c in pair.done(0, 5)] == [0, 1, 2, 3, 4]
    assert len(pair.poll(1)) == 5 and not pair.state(1).ooo_queue and not pair.ends[1].buffers.used
    assert not pair.ends[0].counts["retransmissions"]


def test_sequence_numbers_wrap():
    seqs = (0xFFFF_FFF0, 0xFFFF_FFFE)
    pair = RawPair(seqs=seqs, link=BAD_LINK, seed="wrap")
    for i in range(2):
        for n in range(40):
            pair.post(i, length=10, wr_id=n + 1)
    for i in range(2):
        assert [c.wr_id for c in pair.done(i, 80) if c.wr_id] == list(range(1, 41))
        assert pair.state(i).tx_seq == (seqs[i] + 40) % (1 << 32) == pair.state(1 - i).rx_expected_seq


def test_peer_is_notified_of_each_request_separately():
    pair = RawPair()
    for n, length in enumerate((3000, 5000, 10)):
        pair.post(0, length=length, wr_id=n)
    pair.done(0, 3)
    assert [c.byte_len for c in pair.poll(1)] == [3000, 5000, 10]


def test_queue_pairs_take_turns():
    """If there is space for few frames, each queue pair gets some of it."""
    pair = RawPair(qps=4, tx_queue=16)
    for qp in range(4):
        pair.post(0, length=20_000, qp=qp)
    first = []
    for _ in range(4):
        pair.ends[0].rdma_process(0)
        first.append(parse(pair.ends[0].take_frames()[0]).src_qp)
    assert sorted(first) == [0, 1, 2, 3]


def test_64_queue_pairs_share_a_host():
    pair = RawPair(size=64 * 3000, qps=64)
    data = random.Random(64).randbytes(64 * 3000)
    pair.fill(0, data)
    for q in range(64):
        pair.post(0, length=3000, at=3000 * q, to=3000 * q, wr_id=q, qp=q)
    assert pair.run(lambda: all(len(pair.state(0, q).cq) for q in range(64)))
    assert [c.wr_id for q in range(64) for c in pair.poll(0, q)] == list(range(64))
    assert bytes(pair.mr[1].data) == data


def test_packet_loopback():
    """Two queue pairs of one host, whose frames go to the same host's receiver."""
    end = Endpoint(MACS[0])
    a, b = end.rdma_qp_create(), end.rdma_qp_create()
    mr = end.regions.get(end.rdma_reg_mr(bytearray(range(64)) + bytearray(64), ALL))
    assert end.rdma_qp_connect(a, MACS[0], b) == end.rdma_qp_connect(b, MACS[0], a) == 0
    end.rdma_post_send(a, WorkRequest(3, Opcode.WRITE, mr.id, 0, mr.id, mr.vaddr + 64, mr.key, 64))
    end.rdma_process(0)
    while frames := end.take_frames():
        for frame in frames:
            end.rdma_rx(frame, 0)
    assert all_good(end.rdma_poll_cq(a)) and all_good(end.rdma_poll_cq(b))
    assert bytes(mr.data[64:]) == bytes(range(64))


@pytest.mark.parametrize("seed", SEEDS)
def test_bad_link_preserves_bytes_order_and_number(seed):
    """WRITEs and READs in both directions at once; 5 % are lost, 5 % reordered, 2 % duplicated."""
    again = f"WEFT_SEED={seed} python -m pytest tb/test/driver/soft/test_raw_transfer.py -k bad_link"
    rng = random.Random(seed)
    pair = RawPair(size=120_000, seed=seed, link=BAD_LINK, seqs=(rng.getrandbits(32), rng.getrandbits(32)))
    source = [rng.randbytes(40_000) for _ in range(2)]
    works = []
    for i in range(2):
        pair.fill(i, source[i])
        lengths, at = [], 0
        while at < 40_000:
            lengths.append(min(rng.choice([1, 100, 1460, 1461, 5000]), 40_000 - at))
            at += lengths[-1]
        works.append([(n + 1, length, sum(lengths[:n])) for n, length in enumerate(lengths[:60])])
    posted, done = [0, 0], [[], []]
    written, seen = [0, 0], [0, 0]

    def go_on():
        for i in range(2):
            for c in pair.poll(i):
                assert all_good([c]), again
                if c.wr_id:
                    done[i].append(c)
                else:
                    seen[i] += 1
            while posted[i] < len(works[i]):
                wr_id, length, at = works[i][posted[i]]
                write = wr_id % 3 > 0
                to = 40_000 + at if write else at
                if pair.post(i, Opcode.WRITE if write else Opcode.READ, length=length, at=at if write else 80_000 + at,
                             to=to, wr_id=wr_id):
                    break
                posted[i] += 1
                written[i] += write
        return all(len(done[i]) == len(works[i]) for i in range(2))

    go_on()
    assert pair.run(go_on, 10**10), again
    pair.run(limit_ns=3_000_000)
    go_on()
    for i in range(2):
        assert [c.wr_id for c in done[i]] == [wr_id for wr_id, _, _ in works[i]], again
        assert seen[1 - i] == written[i], again
        for wr_id, length, at in works[i]:
            if wr_id % 3:
                assert bytes(pair.mr[1 - i].data[40_000 + at:][:length]) == source[i][at:at + length], again
            else:
                assert bytes(pair.mr[i].data[80_000 + at:][:length]) == source[1 - i][at:at + length], again
        assert not pair.state(i).inflight and not pair.state(i).ooo_queue and not pair.ends[i].buffers.used, again
    counts = pair.ends[0].counts + pair.ends[1].counts
    assert counts["retransmissions"] and counts["duplicates"] and counts["out_of_order"], again


def test_two_hosts_over_the_simple_nic():
    """Two cards with drivers; the frames pass through the NIC_TX and NIC_RX rings, over a bad link."""
    loop, devices, links = connected_pair(seed=3, forward=replace(BAD_LINK, loss=0.15))
    macs = [0x02_0000_0000_01 + i for i in range(2)]
    contexts = [Context(device, mac=mac, ip=0x0A00_0001 + i)
                for i, (device, mac) in enumerate(zip(devices, macs, strict=True))]
    ends = [Endpoint(mac) for mac in macs]
    regions = [end.regions.get(end.rdma_reg_mr(40_000, ALL)) for end in ends]
    data = random.Random(3).randbytes(40_000)
    regions[0].data[:] = data
    for end, mac in zip(ends, macs[::-1], strict=True):
        assert end.rdma_qp_connect(end.rdma_qp_create(), mac, 0) == 0
    for n in range(8):
        assert ends[0].rdma_post_send(0, WorkRequest(n + 1, Opcode.WRITE, regions[0].id, 5000 * n, regions[1].id,
                                                     5000 * n, regions[1].key, 5000)) == 0
    ports = [SimpleNicPort(context, lambda frame, _: int.from_bytes(frame[12:14], "big") == ETHTYPE_RDMA)
             for context in contexts]
    finished = []

    def serve(i):
        pump, done = Pump(ends[i], ports[i]), []
        while len(finished) < 2:
            contexts[i].progress()
            deadline = pump.round(devices[i].now_ns())
            done += ends[i].rdma_poll_cq(0, 99)
            if len(done) == 8 and i not in finished:
                finished.append(i)
            contexts[i].wait(50_000 if deadline is None else max(1, min(50_000, deadline - devices[i].now_ns())))
        return done

    mine, theirs = run_apps(loop, [(device, lambda i=i: serve(i)) for i, device in enumerate(devices)], 10**10)
    assert all_good(mine + theirs) and [c.wr_id for c in mine] == list(range(1, 9)) and len(theirs) == 8
    assert bytes(regions[1].data) == data and sum(links[0].counters.lost.values()) > 0
    assert ports[0].lost == ports[1].lost == 0 and contexts[0].counts["raw_frames"] > 30
    for port, context in zip(ports, contexts, strict=True):
        port.close()
        context.close()
