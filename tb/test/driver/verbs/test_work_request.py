"""Options of work requests: lists, inline data, fences and events."""

import random

import pytest

from weft.driver.terms.enums import AccessFlag, SendFlags, WCStatus, WROpcode
from weft.driver.terms.errors import InvalidValue, NotSupported, QueueFull
from weft.driver.verbs.mr import MR
from weft.driver.verbs.qp import QPCap
from weft.driver.verbs.requests import send_operation
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import abi
from weft.tb.sim.pair.operation_pair import OperationPair

SEND, WRITE, READ = WROpcode.SEND, WROpcode.RDMA_WRITE, WROpcode.RDMA_READ
SIGNALED, INLINE, FENCE = SendFlags.SIGNALED, SendFlags.INLINE, SendFlags.FENCE


@pytest.mark.parametrize("seed", range(6))
def test_sends_gather_and_scatter_sixteen_elements(seed):
    """Short and long sends, cut differently at both ends."""
    rng = random.Random(seed)
    pair = OperationPair(length=1 << 17)
    a, b = pair.hosts
    data = rng.randbytes(1 << 17)
    a.mr.write(data)
    other = MR(b.pd, 1 << 17, AccessFlag.LOCAL_WRITE)
    top = 16 if seed % 2 else 4_000
    from_lengths = [rng.choice([0, rng.randrange(top)]) for _ in range(16)]
    length = sum(from_lengths)
    cuts = [0, *sorted(rng.choices(range(length + 1), k=15)), length]
    to_lengths = [end - start for start, end in zip(cuts, cuts[1:], strict=False)]
    to_lengths[-1] += 100
    places = [(rng.choice([b.mr, other]), 8_000 * i + rng.randrange(100)) for i in range(16)]
    to_lengths = [min(n, 7_900) for n in to_lengths[:-1]] + [1 << 16]
    places[-1] = (other, 60_000) if places[-1][1] > 60_000 else places[-1]
    b.recv(sges=[SGE(mr.buf + at, n, mr.lkey) for (mr, at), n in zip(places[:15], to_lengths, strict=False)])
    space = sum(to_lengths[:15])
    sges, expected = [], b""
    for i, n in enumerate(from_lengths):
        n = min(n, space - len(expected))
        sges.append((8_000 * i + i, n))
        expected += data[8_000 * i + i : 8_000 * i + i + n]
    pair.send(SEND, *sges)
    (got,) = pair.completions(1, 1)
    assert got.status == WCStatus.SUCCESS and got.byte_len == len(expected)
    found = b"".join(mr.read(n, at) for (mr, at), n in zip(places, to_lengths[:15], strict=False) if n)
    assert found[: len(expected)] == expected
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS]
    pair.close()


@pytest.mark.parametrize("opcode", [SEND, WROpcode.SEND_WITH_IMM, WRITE, WROpcode.RDMA_WRITE_WITH_IMM])
@pytest.mark.parametrize("length", [0, 1, 256])
def test_inline_data_are_copied_at_posting(opcode, length):
    pair = OperationPair()
    a, b = pair.hosts
    data = random.Random(length).randbytes(length)
    for n in range(20):
        b.recv(300 * n, 300)
    for n in range(20):     # more than the mailbox has slots
        a.mr.write(data)
        pair.send(opcode, (0, length), at=300 * n, flags=SIGNALED | INLINE, imm=n)
        a.mr.write(bytes(length))
    assert pair.statuses(0, 20) == [WCStatus.SUCCESS] * 20
    for n in range(20):
        assert b.mr.read(length, 300 * n) == data
    pair.close()


def test_inline_data_are_limited_and_invalid_for_reads_and_atomics():
    pair = OperationPair()
    for opcode, length in ((SEND, 257), (READ, 8), (WROpcode.ATOMIC_FETCH_AND_ADD, 8)):
        with pytest.raises(InvalidValue):
            pair.send(opcode, (0, length), flags=SIGNALED | INLINE)
    with pytest.raises(InvalidValue):
        pair.send(SEND, SGE(77, 10, 0), flags=SIGNALED | INLINE)
    pair.close()


@pytest.mark.parametrize("fence", [True, False])
def test_fence_waits_for_reads_and_atomics(fence):
    """A write to the source of an earlier read executes after the read, if it is fenced."""
    pair = OperationPair()
    a, b = pair.hosts
    pair.send(READ, (0, 8), at=0)      # the ends exchange their mailboxes
    pair.completions(0, 1)
    b.mr.write(b"old")
    a.mr.write(b"new", offset=50_000)
    pair.send(READ, (0, 20_000), at=0)
    pair.send(WROpcode.ATOMIC_FETCH_AND_ADD, (30_000, 8), at=40_000, compare_add=1)
    pair.send(WRITE, (50_000, 3), at=0, flags=SIGNALED | (FENCE if fence else 0))
    requester = a.qp.engine.operations.requester
    early = []

    def done():
        early.append(requester._fetches and not requester.waiting)
        return len(a.cq) == 3

    pair.run_until(done)
    assert any(early) is not fence
    assert pair.statuses(0, 3) == [WCStatus.SUCCESS] * 3
    assert b.mr.read(3, 0) == b"new" and (a.mr.read(3, 0) == b"old" or not fence)
    pair.close()


@pytest.mark.parametrize("opcode", [SEND, WROpcode.RDMA_WRITE_WITH_IMM])
@pytest.mark.parametrize("length", [0, 10, 5_000])
def test_solicited_event_follows_the_solicited_message(opcode, length):
    pair = OperationPair()
    a, b = pair.hosts
    for n in range(3):
        b.recv(n * 6_000, 6_000, wr_id=n)
    b.cq.req_notify(solicited_only=True)
    pair.send(opcode, (0, length))
    assert pair.statuses(0, 1) == pair.statuses(1, 1) == [WCStatus.SUCCESS]
    assert not b.channel.events
    pair.send(opcode, (0, length), flags=SIGNALED | SendFlags.SOLICITED)
    assert pair.statuses(1, 1) == [WCStatus.SUCCESS]
    assert list(b.channel.events) == [b.cq]
    b.cq.req_notify()
    pair.send(opcode, (0, length))
    assert pair.statuses(1, 1) == [WCStatus.SUCCESS]
    assert len(b.channel.events) == 2
    pair.completions(0, 2)
    pair.close()


def test_error_makes_a_solicited_event():
    pair = OperationPair()
    a, b = pair.hosts
    b.recv(0, 10)
    b.cq.req_notify(solicited_only=True)
    pair.send(SEND, (0, 11))
    assert pair.statuses(1, 1) == [WCStatus.LOC_LEN_ERR] and list(b.channel.events) == [b.cq]


def test_only_signaled_requests_complete():
    pair = OperationPair()
    a, b = pair.hosts
    for n in range(10):
        b.recv(wr_id=n)
    for n in range(10):
        pair.send(WROpcode(n % 7 if n % 7 > 4 else (0, 2, 4)[n % 3]), (0, 8), wr_id=n, flags=SIGNALED if n % 5 == 4 else
                  SendFlags(0))
    assert [wc.wr_id for wc in pair.completions(0, 2)] == [4, 9]
    pair.settle()
    assert not len(a.cq)
    pair.close()


def test_linked_requests_are_posted_with_one_doorbell():
    pair = OperationPair()
    a, b = pair.hosts
    device, rung = a.context.device, []
    keep = device.write32
    doorbell = abi.REGISTER["send_prod"].offset

    def write32(offset, value):
        if offset == doorbell:
            rung.append(value)
        keep(offset, value)

    device.write32 = write32
    first = None
    for n in reversed(range(16)):
        first = SendWR(n, WRITE, sg=[a.sge(0, 64)], next_wr=first, rkey=b.mr.rkey, remote_addr=b.mr.buf + 64 * n)
    a.qp.post_send(first)
    assert [wc.wr_id for wc in pair.completions(0, 16)] == list(range(16))
    assert len(rung) == 1
    b.qp.post_recv(RecvWR(1, next_wr=RecvWR(2)))
    assert b.qp.engine.receives == 2
    pair.close()


def test_full_queue_and_impossible_request_queue_nothing_after_them():
    pair = OperationPair(cap={"max_send_wr": 4, "max_recv_wr": 2})
    a, b = pair.hosts
    chain = None
    for n in range(6):
        chain = SendWR(n, SEND, sg=[], next_wr=chain)
    with pytest.raises(QueueFull):
        a.qp.post_send(chain)
    assert a.qp.engine.outstanding == 4
    with pytest.raises(InvalidValue):
        b.qp.post_recv(RecvWR(1, next_wr=RecvWR(2, sg=[a.sge(0, 1)] * 20, next_wr=RecvWR(3))))
    assert b.qp.engine.receives == 1


class _NoMemory:
    """Keys without memory: no data are inline."""

    card_keys = {7: 8}

    @staticmethod
    def gather(sges):
        return b""


def test_only_a_valid_write_of_one_entry_is_a_plain_operation():
    """A plain operation has the fields of its request.

    Invalid requests are rejected, and other requests do not become plain operations.
    """
    rng, cap, seen = random.Random(5), QPCap(max_inline_data=256), set()
    wrong = {"wr_id": [-1, 1 << 64, "a"], "remote_addr": [-1, (1 << 64) - 10], "rkey": [1 << 32], "num_sge": [2, 5],
             "imm_data": [1 << 32], "send_flags": [32, []], "opcode": [99]}
    other = {"send_flags": [INLINE], "opcode": [SEND, READ, WROpcode.RDMA_WRITE_WITH_IMM]}
    flags = [0, SIGNALED, FENCE | SIGNALED, SendFlags.SOLICITED]
    for _ in range(800):
        wr = SendWR(rng.getrandbits(64), WRITE, rng.randrange(2), sg=[SGE(rng.getrandbits(40), rng.getrandbits(20), 7)],
                    send_flags=rng.choice(flags), rkey=rng.getrandbits(32),
                    remote_addr=rng.getrandbits(40), next_wr=rng.choice([None, SendWR()]))
        signal_all, fault = rng.random() < 0.5, rng.choice([None, None, *wrong, "length", "end", "many", "other"])
        if fault == "length":
            wr.sg[0].length = rng.choice([-1, (1 << 31) + 1, 1 << 32])
        elif fault == "end":
            wr.sg[0].addr = (1 << 64) - wr.sg[0].length + 1
        elif fault == "many":
            wr.sg, wr.num_sge = rng.choice([wr.sg * 2, [wr.sg[0], None]]), 0
        elif fault == "other":
            name = rng.choice([*other])
            wr.sg[0].length %= 200
            setattr(wr, name, rng.choice(other[name]))
        elif fault is not None:
            setattr(wr, fault, rng.choice(wrong[fault]))
        seen.add(fault)
        if fault not in (None, "other"):
            with pytest.raises((InvalidValue, NotSupported, TypeError)):
                send_operation(wr, cap, _NoMemory, signal_all=signal_all)
            continue
        operation = send_operation(wr, cap, _NoMemory, signal_all=signal_all)
        assert operation.plain == (fault is None)
        if fault is None:
            (sge,), flag = wr.sg, wr.send_flags
            found = {name: getattr(operation, name) for name in (
                "wr_id", "opcode", "sges", "remote_va", "rkey", "signaled", "fence", "solicited", "followed", "length",
                "inline", "imm")}
            assert found == {
                "wr_id": wr.wr_id, "opcode": WRITE, "sges": [(sge.addr, sge.length, 8)], "remote_va": wr.remote_addr,
                "rkey": wr.rkey, "signaled": signal_all or bool(flag & SIGNALED), "fence": bool(flag & FENCE),
                "solicited": bool(flag & SendFlags.SOLICITED), "followed": wr.next_wr is not None,
                "length": sge.length, "inline": None, "imm": None}
    assert seen == {None, *wrong, "length", "end", "many", "other"}
