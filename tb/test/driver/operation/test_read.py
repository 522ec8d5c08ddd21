"""RDMA READ over functional cards."""

import random

import pytest

from weft.driver.terms.enums import MTU, AccessFlag, QPAttrMask, QPState, WCOpcode, WCStatus, WROpcode
from weft.driver.terms.errors import InvalidValue
from weft.driver.verbs.mr import MR
from weft.driver.verbs.qp import QPAttr
from weft.driver.verbs.wr import SGE
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.operation_pair import OperationPair

READ = WROpcode.RDMA_READ
LOCAL = AccessFlag.LOCAL_WRITE


@pytest.mark.parametrize(("length", "at", "to"), [(0, 0, 0), (1, 4095, 3), (1000, 3, 4090), (20_001, 4095, 1)])
def test_read_returns_the_data(length, at, to):
    """Neither the QPs nor the destination memory permit writes."""
    pair = OperationPair(access=AccessFlag.REMOTE_READ, memory_access=AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ)
    a, b = pair.hosts
    data = random.Random(length).randbytes(1 << 15)
    b.mr.write(data)
    pair.send(READ, (to, length), at=at)
    (wc,) = pair.completions(0, 1)
    assert (wc.wr_id, wc.status, wc.opcode, wc.byte_len) == (7, WCStatus.SUCCESS, WCOpcode.RDMA_READ, length)
    assert a.mr.read(length, to) == data[at : at + length]
    assert not any(a.mr.read(to, 0)) and not any(a.mr.read(100, to + length))
    assert not len(b.cq) and not pair.pair.contexts[0].engine.lender.windows.open
    pair.close()


@pytest.mark.parametrize("seed", range(5))
def test_read_fills_sixteen_elements_of_several_regions(seed):
    rng = random.Random(seed)
    pair = OperationPair(length=1 << 17, path_mtu=MTU(rng.randint(1, 5)))
    a, b = pair.hosts
    other = MR(a.pd, 1 << 17, LOCAL)
    data = rng.randbytes(1 << 17)
    b.mr.write(data)
    lengths = [rng.choice([0, 1, rng.randrange(100), rng.randrange(8_000)]) for _ in range(16)]
    places = [(rng.choice([a.mr, other]), 8_000 * i + rng.randrange(100)) for i in range(16)]
    pair.send(READ, *(SGE(mr.buf + at, n, mr.lkey) for (mr, at), n in zip(places, lengths, strict=True)), at=77)
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS]
    done = 77
    for (mr, at), n in zip(places, lengths, strict=True):
        assert mr.read(n, at) == data[done : done + n]
        done += n
    pair.close()


def test_reads_are_outstanding_together_and_complete_in_order():
    pair = OperationPair(length=1 << 18, max_rd_atomic=4)
    a, b = pair.hosts
    data = random.Random(3).randbytes(1 << 18)
    b.mr.write(data)
    most = []
    for n in range(12):
        pair.send(READ, (n * 9_000, 9_000), at=n * 9_000, wr_id=n)
    while len(a.cq) < 12:
        pair.run_until(lambda: True)
        pair.pair.loop.run(pair.pair.loop.now_ns + 300)
        most.append(a.qp.engine.operations.requester._fetches)
    assert max(most) == 4
    assert [wc.wr_id for wc in pair.completions(0, 12)] == list(range(12))
    assert a.mr.read(12 * 9_000, 0) == data[: 12 * 9_000]
    pair.close()


def test_read_returns_earlier_sends_and_writes():
    pair = OperationPair()
    a, b = pair.hosts
    a.mr.write(random.Random(1).randbytes(20_000))
    b.recv(0, 10_000)
    pair.send(WROpcode.SEND, (0, 9_000))
    pair.send(WROpcode.RDMA_WRITE, (9_000, 1_000), at=9_000)
    pair.send(READ, (30_000, 10_000), at=0)
    assert pair.statuses(0, 3) == [WCStatus.SUCCESS] * 3
    assert a.mr.read(10_000, 30_000) == a.mr.read(10_000, 0)
    pair.close()


REFUSED = {
    "wrong key": {"rkey": 0x12345678},
    "beyond the end": {"at": 65_000},
    "before the start": {"at": -5},
}


@pytest.mark.parametrize("subject", [*REFUSED, "memory not readable", "QP not readable", "another domain"])
def test_unpermitted_read_moves_nothing(subject):
    access = AccessFlag.REMOTE_WRITE | (0 if subject == "QP not readable" else AccessFlag.REMOTE_READ)
    pair = OperationPair(access=access)
    a, b = pair.hosts
    b.mr.write(bytes(range(256)) * 256)
    fields = REFUSED.get(subject, {})
    if subject == "memory not readable":
        fields = {"rkey": MR(b.pd, access=LOCAL | AccessFlag.REMOTE_WRITE, buffer=b.mr.buffer).rkey}
    elif subject == "another domain":
        pd = type(b.pd)(b.context)
        fields = {"rkey": MR(pd, access=LOCAL | AccessFlag.REMOTE_READ, buffer=b.mr.buffer).rkey}
    pair.send(WROpcode.RDMA_WRITE, (0, 100))
    pair.send(READ, (0, 1_000), wr_id=8, **fields)
    pair.send(WROpcode.RDMA_WRITE, (0, 100), wr_id=9)
    assert [(wc.wr_id, wc.status) for wc in pair.completions(0, 3)] == [
        (7, WCStatus.SUCCESS), (8, WCStatus.REM_ACCESS_ERR), (9, WCStatus.WR_FLUSH_ERR)]
    assert not any(a.mr.read(1 << 16, 0))
    for context in pair.pair.contexts:
        pair.settle()
        assert not context.engine.lender.windows.open


def test_destination_is_writable_by_its_operation_only():
    """A peer that uses the key of a window at another address, later, or over another QP is rejected."""
    pair = OperationPair(qps=2, access=AccessFlag.REMOTE_READ | AccessFlag.REMOTE_WRITE,
                         memory_access=LOCAL | AccessFlag.REMOTE_READ)
    a, b = pair.hosts
    b.mr.write(b"x" * 5_000)
    keys, keep = [], pair.pair.links[0].send

    def overhear(frame):
        windows = list(a.context.engine.lender.windows.open)
        if windows and not keys:
            keys.append(windows[0].key)
        keep(frame)

    pair.pair.devices[0].transmit = overhear
    pair.send(READ, (100, 5_000))
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS]
    pair.send(WROpcode.RDMA_WRITE, (0, 10), end=1, at=100, rkey=keys[0])
    assert pair.statuses(1, 1) == [WCStatus.REM_ACCESS_ERR]
    assert a.mr.read(5_000, 100) == b"x" * 5_000
    card = pair.pair.devices[0].card
    windows = [e for e in card.tables.mrs.values() if e.window]
    assert all(e.va == 0 for e in windows), "only mailboxes are left"
    assert card.counters["drop_bad_key"]


def test_foreign_local_memory_fails_in_order():
    pair = OperationPair()
    a, b = pair.hosts
    read_only = MR(a.pd, 4096, AccessFlag(0))
    b.mr.write(b"y" * 100)
    pair.send(READ, (0, 100))
    pair.send(READ, SGE(read_only.buf, 100, read_only.lkey), wr_id=8)
    pair.send(READ, (0, 100), wr_id=9)
    assert pair.statuses(0, 3) == [WCStatus.SUCCESS, WCStatus.LOC_PROT_ERR, WCStatus.WR_FLUSH_ERR]
    assert a.mr.read(100, 0) == b"y" * 100 and not any(read_only.read(4096, 0))


def test_reads_wait_for_free_regions():
    """The card has few regions; 16 of them stay reserved for receives, and all reads complete nevertheless."""
    pair = OperationPair(length=1 << 17, pair=make_pair(preset="test"))
    a, b = pair.hosts
    data = random.Random(8).randbytes(1 << 17)
    b.mr.write(data)
    few = [MR(a.pd, 64, LOCAL) for _ in range(12)]
    for n in range(4):
        pair.send(READ, *((n * 20_000 + 1_200 * i, 1_200) for i in range(16)), at=n * 20_000, wr_id=n)
    least = []

    def done():
        least.append(a.context.mr_indices.free)
        return len(a.cq) == 4

    pair.run_until(done)
    assert min(least) < 16 < 32 - len(few)
    assert pair.statuses(0, 4) == [WCStatus.SUCCESS] * 4
    for n in range(4):
        assert a.mr.read(19_200, n * 20_000) == data[n * 20_000 : n * 20_000 + 19_200]
    few += [MR(a.pd, 64, LOCAL) for _ in range(a.context.mr_indices.free - 3)]
    pair.send(READ, *((1_200 * i, 1_200) for i in range(16)), at=0)
    assert pair.statuses(0, 1) == [WCStatus.LOC_QP_OP_ERR]
    pair.close()


@pytest.mark.parametrize("opcode", [WROpcode.RDMA_READ, WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.ATOMIC_CMP_AND_SWP])
def test_a_qp_without_resources_for_reads_refuses_them(opcode):
    pair = OperationPair(max_rd_atomic=0)
    with pytest.raises(InvalidValue, match="max_rd_atomic is 0"):
        pair.send(opcode, (0, 8))
    assert not pair.hosts[0].qp.engine.outstanding
    pair.send(WROpcode.RDMA_WRITE, (0, 8))
    assert pair.statuses(0, 1) == [WCStatus.SUCCESS]
    pair.hosts[0].qp.modify(QPAttr(qp_state=QPState.ERR), QPAttrMask.STATE)
    pair.send(opcode, (0, 8))
    assert pair.statuses(0, 1) == [WCStatus.WR_FLUSH_ERR]
    pair.close()


def test_a_read_whose_resources_are_taken_away_before_it_starts_fails():
    pair = OperationPair()
    qp = pair.hosts[0].qp
    qp.modify(QPAttr(qp_state=QPState.SQD), QPAttrMask.STATE)
    pair.send(WROpcode.RDMA_READ, (0, 8))
    qp.modify(QPAttr(max_rd_atomic=0), QPAttrMask.MAX_QP_RD_ATOMIC)
    qp.modify(QPAttr(qp_state=QPState.RTS), QPAttrMask.STATE)
    assert pair.statuses(0, 1) == [WCStatus.LOC_QP_OP_ERR]
    pair.close()
