"""Operations of the RoCEv2 endpoint, over good links and over links that lose, reorder and duplicate frames."""

import os
import random

import pytest

from weft.driver.soft.rc.opcodes import RcOpcode as O
from weft.driver.soft.rc.qp import SoftQP
from weft.driver.soft.rc.request import OPCODES
from weft.driver.terms.enums import MTU, SendFlags, WCFlags, WCOpcode, WROpcode
from weft.driver.verbs.qp_init_attr import rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.tb.test.driver.soft.hosts import BAD_LINK
from weft.tb.test.driver.soft.rc_pair import RcPair, all_good

SEEDS = [int(s) for s in os.environ["WEFT_SEED"].split(",")] if os.environ.get("WEFT_SEED") else range(1, 21)
W = WROpcode
COUNT = 80   # requests each way over bad links; below: offsets of their data in the memory of a host
WRITTEN, RECEIVED, READ, ATOMICS = 60_000, 120_000, 180_000, 240_000
LENGTHS = [0, 1, 3, 4, 255, 256, 257, 512, 1000]


def kinds(opcodes):
    """Return FIRST, MIDDLE, LAST or ONLY for each opcode."""
    return [opcode.name.removesuffix("_IMM").rpartition("_")[2] for opcode in opcodes]


def places(length, pmtu=256):
    count = max(1, -(-length // pmtu))
    return ["ONLY"] if count == 1 else ["FIRST", *["MIDDLE"] * (count - 2), "LAST"]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("opcode", [W.SEND, W.SEND_WITH_IMM, W.RDMA_WRITE, W.RDMA_WRITE_WITH_IMM])
def test_message_arrives_complete(opcode, length):
    pair = RcPair(path_mtu=MTU.MTU_256)
    data = random.Random(length).randbytes(length)
    pair.mr[0].write(data, 5)
    pair.post_recv(1, at=2000, wr_id=77)
    pair.post(0, opcode, length=length, at=5, to=2000, imm=0xC0FFEE)
    [sent] = pair.done(0, 1)
    assert all_good([sent]) and sent.byte_len == length
    assert sent.opcode is (WCOpcode.SEND if opcode in (W.SEND, W.SEND_WITH_IMM) else WCOpcode.RDMA_WRITE)
    assert pair.mr[1].read(length + 2, 1999) == b"\0" + data + b"\0"
    with_imm = opcode in (W.SEND_WITH_IMM, W.RDMA_WRITE_WITH_IMM)
    received = pair.poll(1)
    if opcode is W.RDMA_WRITE:
        assert not received
    else:
        [wc] = received
        assert all_good([wc]) and (wc.wr_id, wc.byte_len) == (77, length)
        assert (wc.imm_data, wc.wc_flags) == ((0xC0FFEE, WCFlags.WITH_IMM) if with_imm else (0, WCFlags(0)))
        assert wc.opcode is (WCOpcode.RECV_RDMA_WITH_IMM if opcode is W.RDMA_WRITE_WITH_IMM else WCOpcode.RECV)
    packets = pair.sent(0)
    assert kinds(p.opcode for p in packets) == places(length)
    assert packets[-1].opcode.name.endswith("_IMM") is with_imm and packets[-1].ack_req
    assert [p.psn for p in packets] == [(packets[0].psn + n) % (1 << 24) for n in range(len(packets))]


@pytest.mark.parametrize("length", LENGTHS)
def test_read_returns_the_data_of_the_peer(length):
    pair = RcPair(path_mtu=MTU.MTU_256)
    data = random.Random(length).randbytes(length)
    pair.mr[1].write(data, 77)
    pair.post(0, W.RDMA_READ, length=length, at=3, to=77)
    [wc] = pair.done(0, 1)
    assert all_good([wc]) and (wc.opcode, wc.byte_len) == (WCOpcode.RDMA_READ, length)
    assert pair.mr[0].read(length + 2, 2) == b"\0" + data + b"\0"
    assert [p.opcode for p in pair.sent(0)] == [O.READ_REQUEST]
    assert kinds(p.opcode for p in pair.sent(1)) == places(length)


def test_atomics():
    pair = RcPair()
    pair.mr[1].write((41).to_bytes(8, "little"), 16)
    pair.post(0, W.ATOMIC_FETCH_AND_ADD, to=16, at=0, compare_add=(1 << 64) - 1)
    pair.post(0, W.ATOMIC_CMP_AND_SWP, to=16, at=8, compare_add=40, swap=0x1122334455667788)
    pair.post(0, W.ATOMIC_CMP_AND_SWP, to=16, at=16, compare_add=40, swap=5)
    done = pair.done(0, 3)
    assert all_good(done) and [wc.opcode for wc in done] == [WCOpcode.FETCH_ADD] + [WCOpcode.COMP_SWAP] * 2
    got = [int.from_bytes(pair.mr[0].read(8, 8 * n), "little") for n in range(3)]
    assert got == [41, 40, 0x1122334455667788]
    assert int.from_bytes(pair.mr[1].read(8, 16), "little") == 0x1122334455667788


def test_scatter_and_gather():
    pair = RcPair(path_mtu=MTU.MTU_256)
    data = random.Random(1).randbytes(900)
    pair.mr[0].write(data)
    lkey, buf = pair.mr[0].lkey, pair.mr[0].buf
    pieces = [(0, 1), (1, 0), (1, 254), (255, 300), (555, 345)]
    wr = SendWR(1, sg=[SGE(buf + at, size, lkey) for at, size in pieces], opcode=W.RDMA_WRITE)
    wr.set_wr_rdma(pair.mr[1].rkey, pair.mr[1].buf + 9)
    pair.qp[0].post_send(wr)
    back = SendWR(2, sg=[SGE(buf + 4096 + at, size, lkey) for at, size in reversed(pieces)], opcode=W.RDMA_READ)
    back.set_wr_rdma(pair.mr[1].rkey, pair.mr[1].buf + 9)
    pair.qp[0].post_send(back)
    assert all_good(pair.done(0, 2)) and pair.mr[1].read(900, 9) == data
    at, read = 0, pair.mr[0].read(900, 4096)
    for offset, size in reversed(pieces):
        assert read[offset:offset + size] == data[at:at + size]
        at += size


def test_psns_wrap():
    pair = RcPair(psns=(0xFF_FFF0, 0xFF_FFFE), link=BAD_LINK, path_mtu=MTU.MTU_256)
    for n in range(20):
        for i in range(2):
            pair.post(i, W.RDMA_READ if n % 3 else W.RDMA_WRITE, length=600, wr_id=n)
    for i in range(2):
        assert [wc.wr_id for wc in pair.done(i, 20)] == list(range(20))
        assert pair.qp[i].requester.una > 1 << 24


def test_queue_pairs_of_a_host_take_turns():
    pair = RcPair(size=1 << 18, path_mtu=MTU.MTU_256)
    data = random.Random(8).randbytes(8 * 20_000)
    pair.mr[0].write(data)
    more = [[SoftQP(pair.pd[i], rc_init_attr(pair.cq[i])) for _ in range(7)] for i in range(2)]
    for i in range(2):
        for mine, other in zip(more[i], more[1 - i], strict=True):
            mine.connect(other.connection, pair.qp[i].attr)
    for q, qp in enumerate([pair.qp[0], *more[0]]):
        pair.qp[0] = qp
        pair.post(0, W.RDMA_WRITE, length=20_000, at=20_000 * q, to=20_000 * q, wr_id=q)
    assert sorted(wc.wr_id for wc in pair.done(0, 8)) == list(range(8)) and pair.mr[1].read(len(data)) == data
    first = [p.dest_qp for p in pair.sent(0)[:128]]
    assert [first.count(qpn) for qpn in set(first)] == [16] * 8, "no one waits until another is done"


def test_unsignaled_requests_complete_silently():
    pair = RcPair()
    for n in range(10):
        pair.post(0, W.RDMA_WRITE, wr_id=n, flags=SendFlags.SIGNALED if n % 5 == 4 else SendFlags(0))
    assert [wc.wr_id for wc in pair.done(0, 2)] == [4, 9]


@pytest.mark.parametrize("seed", SEEDS)
def test_bad_link_preserves_bytes_order_and_number(seed):
    """All operations in both directions at once; 5 % of the frames are lost, 5 % reordered, 2 % duplicated."""
    again = f"WEFT_SEED={seed} python -m pytest tb/test/driver/soft/test_rc_transfer.py -k bad_link"
    rng = random.Random(seed)
    pair = RcPair(size=1 << 18, seed=seed, link=BAD_LINK, path_mtu=rng.choice([MTU.MTU_256, MTU.MTU_1024]),
                  end_to_end_credits=(True, rng.random() < 0.5), max_rd_atomic=rng.choice([1, 4]))
    source = [rng.randbytes(700 * COUNT) for _ in range(2)]
    plan = [[], []]
    for i in range(2):
        pair.mr[i].write(source[i])
        for n in range(COUNT):
            plan[i].append((n + 1, rng.choice(OPCODES), rng.choice([0, 1, 100, 700]), 700 * n))
    receiving = [[p for p in plan[1 - i] if p[1] in (W.SEND, W.SEND_WITH_IMM, W.RDMA_WRITE_WITH_IMM)] for i in range(2)]
    posted, seen, adds = [0, 0], [[], []], [0, 0]
    for i in range(2):
        for wr_id, opcode, length, at in plan[i]:
            if opcode is W.ATOMIC_FETCH_AND_ADD:
                adds[i] += wr_id
            if opcode in (W.ATOMIC_CMP_AND_SWP, W.ATOMIC_FETCH_AND_ADD):
                pair.post(i, opcode, at=ATOMICS + 8 * wr_id, to=ATOMICS, compare_add=wr_id, wr_id=wr_id)
            elif opcode is W.RDMA_READ:
                pair.post(i, opcode, length=length, at=READ + at, to=at, wr_id=wr_id)
            else:
                pair.post(i, opcode, length=length, at=at, to=WRITTEN + at, wr_id=wr_id, imm=wr_id)

    def go_on():
        for i in range(2):
            seen[i] += pair.poll(i)
            while posted[i] < len(receiving[i]) and len(pair.qp[i].receives) < 3:
                pair.post_recv(i, length=700, at=RECEIVED + 700 * posted[i], wr_id=1000 + posted[i])
                posted[i] += 1
        return all(len(seen[i]) == COUNT + len(receiving[i]) for i in range(2))

    go_on()
    assert pair.run(go_on, 10**10), again
    pair.run(limit_ns=10**8)
    go_on()
    for i in range(2):
        other = pair.mr[1 - i]
        assert all_good(seen[i]), again
        assert [wc.wr_id for wc in seen[i] if wc.wr_id < 1000] == list(range(1, COUNT + 1)), again
        got = [wc for wc in seen[i] if wc.wr_id >= 1000]
        assert [wc.wr_id for wc in got] == list(range(1000, 1000 + len(receiving[i]))), again
        for number, (wc, (wr_id, opcode, length, at)) in enumerate(zip(got, receiving[i], strict=True)):
            assert wc.byte_len == length and wc.imm_data in (0, wr_id), again
            place = WRITTEN + at if opcode is W.RDMA_WRITE_WITH_IMM else RECEIVED + 700 * number
            assert pair.mr[i].read(length, place) == source[1 - i][at:at + length], again
        for _wr_id, opcode, length, at in plan[i]:
            if opcode is W.RDMA_READ:
                assert pair.mr[i].read(length, READ + at) == other.read(length, at), again
            elif opcode is W.RDMA_WRITE:
                assert other.read(length, WRITTEN + at) == source[i][at:at + length], again
        if not any(p[1] is W.ATOMIC_CMP_AND_SWP for p in plan[i]):
            assert int.from_bytes(other.read(8, ATOMICS), "little") == adds[i], again
        assert not pair.qp[i].requester.requests and not len(pair.qp[i].responder.replies), again
    counts = pair.ends[0].counts + pair.ends[1].counts
    assert counts["resent"] and counts["duplicates"] and counts["early_packets"], again


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_add_is_executed_once(seed):
    """The results show an addition that was executed twice or not at all, and a wrong response."""
    pair = RcPair(seed=seed, link=BAD_LINK)
    for n in range(100):
        pair.post(0, W.ATOMIC_FETCH_AND_ADD, at=8 * n, to=8, compare_add=n + 1, wr_id=n)
    assert all_good(pair.done(0, 100))
    assert [int.from_bytes(pair.mr[0].read(8, 8 * n), "little") for n in range(100)] == [
        n * (n + 1) // 2 for n in range(100)]
    assert pair.ends[1].counts["duplicates"] > 5
