"""Lists of writes: one message to the peer with one acknowledgement, and a separate completion for every request."""

import itertools
import random

import pytest

from weft.driver.send.send_queue import ACKED_AT_ONCE
from weft.driver.send.sender import Sender
from weft.driver.terms.enums import MTU, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.wr import SendWR
from weft.model.functional.host import LinkConfig
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.operation_pair import OperationPair

SUCCESS = WCStatus.SUCCESS
HALF = 1 << 17     # of the memory: writes go from the first half to the second
FENCED = SendFlags.SIGNALED | SendFlags.FENCE


@pytest.fixture
def seed():
    value = random.SystemRandom().randrange(1 << 32)
    print(f"seed {value}")
    return value


def post_list(pair, requests):
    """Post (opcode, offset, length, flags) as one list; an offset is the same on both sides, except for the half."""
    a, b = pair.hosts
    first = None
    for number, (opcode, at, length, flags) in reversed(list(enumerate(requests))):
        remote = 0 if opcode is WROpcode.RDMA_READ else HALF
        first = SendWR(number, opcode, sg=[a.sge(HALF - remote + at, length)], send_flags=flags, next_wr=first,
                       rkey=b.mr.rkey, remote_addr=b.mr.buf + remote + at)
    a.qp.post_send(first)


def writes(lengths):
    starts = itertools.accumulate(lengths, initial=0)
    return [(WROpcode.RDMA_WRITE, at, length, SendFlags.SIGNALED) for at, length in zip(starts, lengths, strict=False)]


def doorbells(pair):
    """Return the numbers of message ends reported to the peer and of acknowledgements that the peer sent."""
    context = pair.hosts[1].context
    return context.engine.reports.counts["MESSAGE_END"], context.counts["ACKNOWLEDGE"]


def test_a_list_is_one_message_and_single_writes_are_each():
    pair = OperationPair(2 * HALF)
    data = random.Random(1).randbytes(HALF)
    pair.hosts[0].mr.write(data)
    post_list(pair, writes([1_000] * 10))
    assert [wc.wr_id for wc in pair.completions(0, 10)] == list(range(10)) and doorbells(pair) == (1, 1)
    assert pair.hosts[1].mr.read(10_000, HALF) == data[:10_000]
    for n in range(3):
        post_list(pair, writes([1_000]))
        pair.completions(0, 1)
        assert doorbells(pair) == (2 + n, 2 + n), "a single write waits for no other"
    pair.close()


@pytest.mark.parametrize("log2", [20, 5])
def test_acknowledgement_is_requested_before_the_limit(log2):
    """If the peer accepts few packets ahead, an acknowledgement is requested early enough, without a probe."""
    pair = OperationPair(2 * HALF, path_mtu=MTU.MTU_256, outstanding_log2=log2)
    post_list(pair, writes([8 * 256 + 16] * 60))
    assert len(pair.completions(0, 60)) == 60
    most = min(ACKED_AT_ONCE, (1 << log2) // 2)
    packets = 60 * 9
    assert packets // (most + 9) <= doorbells(pair)[0] <= packets // most + 1
    assert not pair.hosts[0].qp.sender.counts["probes"]
    pair.close()


def test_writes_do_not_wait_for_a_blocked_request():
    """The peer is notified of a write before a fence, and before a request that is not a write."""
    pair = OperationPair(2 * HALF)
    read, write, fenced = ((WROpcode.RDMA_READ, 0, 100, SendFlags.SIGNALED), *writes([100]),
                           (WROpcode.RDMA_WRITE, 100, 100, FENCED))
    post_list(pair, [read])      # from now on both ends have their mailboxes
    pair.completions(0, 1)
    for requests in ([read, write, fenced], [write, read, write], [write, (WROpcode.RDMA_WRITE, 0, 0, 0), write]):
        before = doorbells(pair)[0]
        post_list(pair, requests)
        pair.run_until(lambda: not pair.hosts[0].qp.engine.outstanding)
        pair.hosts[0].cq.take(3)
        assert doorbells(pair)[0] - before == (2 if requests[1][2] == 0 else 3)
    assert not pair.hosts[0].qp.sender.counts["probes"]
    pair.close()


@pytest.mark.parametrize("fault", ["lkey", "rkey"])
@pytest.mark.parametrize("at", [0, 3, 9])
def test_bad_write_fails_in_order(fault, at):
    pair = OperationPair(2 * HALF)
    a, b = pair.hosts
    first = None
    for n in reversed(range(10)):
        sge = a.sge(1_000 * n, 1_000)
        if n == at and fault == "lkey":
            sge.lkey ^= 1
        first = SendWR(n, WROpcode.RDMA_WRITE, sg=[sge], next_wr=first, rkey=b.mr.rkey ^ (n == at and fault == "rkey"),
                       remote_addr=b.mr.buf + HALF + 1_000 * n)
    a.qp.post_send(first)
    status = WCStatus.LOC_PROT_ERR if fault == "lkey" else WCStatus.REM_ACCESS_ERR
    assert pair.statuses(0, 10) == [SUCCESS] * at + [status] + [WCStatus.WR_FLUSH_ERR] * (9 - at)
    pair.close()


def test_mixed_lists_arrive_under_loss(seed):
    """Writes with other requests between them complete in order and with the right bytes.

    Some requests are fenced, and some are empty.
    """
    rng = random.Random(seed)
    loss = LinkConfig(loss=0.03, reorder=0.05, duplicate=0.02, reorder_distance=4)
    pair = OperationPair(2 * HALF, pair=make_pair(forward=loss, backward=loss, seed=seed), path_mtu=MTU.MTU_256)
    a, b = pair.hosts
    seen = set()
    for _ in range(60):
        data = rng.randbytes(HALF)
        a.mr.write(data)
        b.mr.write(data)
        requests, at = [], 0
        for _ in range(rng.randrange(1, 30)):
            opcode = rng.choice([WROpcode.RDMA_WRITE] * 6 + [WROpcode.RDMA_WRITE_WITH_IMM, WROpcode.SEND,
                                                             WROpcode.RDMA_READ])
            length = rng.choice([0, 1, 255, 256, rng.randrange(4_000)])
            flags = FENCED if rng.random() < 0.1 else SendFlags.SIGNALED
            requests.append((opcode, at, length, flags))
            at += length
        for opcode, *_ in requests:
            if opcode in (WROpcode.SEND, WROpcode.RDMA_WRITE_WITH_IMM):
                b.recv(2 * HALF - 4_096, 4_096)
        before = doorbells(pair)[0]
        post_list(pair, requests)
        found = pair.completions(0, len(requests))
        assert [(wc.wr_id, wc.status) for wc in found] == [(n, SUCCESS) for n in range(len(requests))], seed
        for opcode, place, length, _ in requests:
            if opcode is WROpcode.RDMA_READ:
                assert a.mr.read(length, HALF + place) == data[place : place + length]
            elif opcode is not WROpcode.SEND:
                assert b.mr.read(length, HALF + place) == data[place : place + length]
        seen |= {opcode for opcode, *_ in requests}
        seen |= {"together"} if doorbells(pair)[0] - before < len(requests) else set()
    assert {"together", WROpcode.SEND, WROpcode.RDMA_READ, WROpcode.RDMA_WRITE_WITH_IMM} <= seen
    pair.close()


def frames_of(seed):
    """Return (time, frame) of all frames that both cards send for random lists of writes of three QPs.

    The rings are small, and some lists are posted while the card works on others.
    """
    rng, frames = random.Random(seed), []
    config = ContextConfig(ring_log2=rng.choice([3, 5, 8]), random=random.Random(seed))
    pair = OperationPair(2 * HALF, qps=3, pair=make_pair(config, seed=seed),
                         path_mtu=rng.choice([MTU.MTU_256, MTU.MTU_4096]))
    loop = pair.pair.loop
    for device in pair.pair.devices:
        device.transmit = recorded(device.transmit, loop, frames)
    a, b = pair.hosts
    for _ in range(2):
        count = 0
        for qp in (*a.qps, *a.qps):
            first = None
            for n in range(rng.randrange(20)):
                length = rng.choice([0, 100, 5_000, rng.randrange(HALF // 2)])
                sges = [a.sge(0, length)] if rng.random() < 0.95 else [a.sge(0, length // 2), a.sge(0, length // 2)]
                first = SendWR(n, WROpcode.RDMA_WRITE, sg=sges, next_wr=first, rkey=b.mr.rkey,
                               remote_addr=b.mr.buf + HALF + rng.randrange(HALF - length))
                count += 1
            if first is not None:
                qp.post_send(first)
            for _ in range(rng.randrange(10)):
                loop.run(loop.now_ns + 2_000)
                a.context.progress()
        assert pair.statuses(0, count) == [SUCCESS] * count
    pair.close()
    return frames


def recorded(transmit, loop, frames):
    def send(frame, *rest):
        frames.append((loop.now_ns, bytes(frame)))
        return transmit(frame, *rest)

    return send


def test_runs_of_descriptors_equal_single_descriptors(seed, monkeypatch):
    delivered = []
    in_runs = Sender.next_work

    def counted(self, entries, most_bytes):
        works = in_runs(self, entries, most_bytes)
        delivered.append(len(works))
        return works

    monkeypatch.setattr(Sender, "next_work", counted)
    frames = frames_of(seed)
    monkeypatch.setattr(Sender, "next_work", lambda self, entries, most_bytes: in_runs(self))
    assert frames_of(seed) == frames and max(delivered) > 1
