"""Error completions of operations, provoked at both ends."""

import pytest

from weft.driver.terms.enums import AccessFlag, EventType, QPAttrMask, QPState, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.mr import MR
from weft.driver.verbs.qp import QPAttr
from weft.driver.verbs.wr import SGE
from weft.hdl.contract import wire
from weft.tb.sim.pair.operation_pair import OperationPair

SEND, WRITE, READ, ADD = (WROpcode.SEND, WROpcode.RDMA_WRITE, WROpcode.RDMA_READ, WROpcode.ATOMIC_FETCH_AND_ADD)
FAST = {"timeout": 4, "retry_cnt": 1}
Status = WCStatus


def events(pair, end):
    return [event.event_type for event in pair.hosts[end].context.async_events]


@pytest.mark.parametrize("length", [11, 5_000])
def test_too_small_receive_is_an_error(length):
    pair = OperationPair()
    a, b = pair.hosts
    b.recv(0, length, wr_id=1)
    b.recv(0, length - 1, wr_id=2)
    b.recv(0, length, wr_id=3)
    a.mr.write(b"z" * length)
    for n in range(3):
        pair.send(SEND, (0, length), wr_id=n)
    assert pair.statuses(0, 3) == [Status.SUCCESS, Status.REM_INV_REQ_ERR, Status.WR_FLUSH_ERR]
    assert [(wc.wr_id, wc.status) for wc in pair.completions(1, 3)] == [
        (1, Status.SUCCESS), (2, Status.LOC_LEN_ERR), (3, Status.WR_FLUSH_ERR)]
    assert b.qp.qp_state is a.qp.qp_state is QPState.ERR
    assert b.mr.read(length + 10, 0) == b"z" * length + bytes(10)
    assert events(pair, 1) == [EventType.QP_REQ_ERR]
    pair.close()


@pytest.mark.parametrize("length", [11, 5_000])
@pytest.mark.parametrize("subject", ["key", "range", "permission", "domain"])
def test_receive_with_foreign_memory_is_an_error(subject, length):
    pair = OperationPair()
    a, b = pair.hosts
    sge = b.sge(0, length)
    if subject == "key":
        sge.lkey ^= 1
    elif subject == "range":
        sge.addr += (1 << 16) - length + 1
    elif subject == "permission":
        mr = MR(b.pd, 8192, AccessFlag(0))
        sge = SGE(mr.buf, length, mr.lkey)
    else:
        mr = MR(type(b.pd)(b.context), 8192, AccessFlag.LOCAL_WRITE)
        sge = SGE(mr.buf, length, mr.lkey)
    b.recv(sges=[sge])
    a.mr.write(b"z" * length)
    pair.send(SEND, (0, length))
    assert pair.statuses(0, 1) == [Status.REM_OP_ERR]
    assert pair.statuses(1, 1) == [Status.LOC_PROT_ERR]
    assert not any(b.mr.read(1 << 16, 0))


@pytest.mark.parametrize(("opcode", "length"), [(SEND, 0), (SEND, 100), (SEND, 5_000),
                                                (WROpcode.RDMA_WRITE_WITH_IMM, 100)])
@pytest.mark.parametrize("retries", [0, 3])
def test_no_receive_exhausts_the_retries(opcode, length, retries):
    pair = OperationPair(rnr_retry=retries, min_rnr_timer=2)
    a, b = pair.hosts
    b.recv(0, 5_000)
    for n in range(3):
        pair.send(opcode, (0, length), wr_id=n)
    assert pair.statuses(0, 3) == [Status.SUCCESS, Status.RNR_RETRY_EXC_ERR, Status.WR_FLUSH_ERR]
    assert pair.statuses(1, 1) == [Status.SUCCESS]
    assert a.qp.sender._rnr == retries + 1
    pair.close()


@pytest.mark.parametrize("length", [0, 100, 5_000])
def test_late_receive_is_waited_for(length):
    """Later requests of the same end wait; requests of the other end do not."""
    pair = OperationPair(rnr_retry=7, min_rnr_timer=1)
    a, b = pair.hosts
    a.mr.write(b"s" * 5_000)
    pair.send(SEND, (0, length), wr_id=1)
    pair.send(READ, (6_000, 8), wr_id=2)
    pair.settle(1_000_000)
    assert not len(a.cq) and a.qp.sender._rnr > 3
    pair.send(READ, (20_000, 3_000), end=1, at=0)
    pair.send(ADD, (30_000, 8), end=1, at=40_000, compare_add=3)
    assert pair.statuses(1, 2) == [Status.SUCCESS] * 2
    assert b.mr.read(3_000, 20_000) == b"s" * 3_000
    b.recv(0, 5_000, wr_id=9)
    assert [(wc.wr_id, wc.status) for wc in pair.completions(0, 2)] == [(1, Status.SUCCESS), (2, Status.SUCCESS)]
    assert pair.completions(1, 1)[0].wr_id == 9
    pair.close()


@pytest.mark.parametrize("opcode", [SEND, READ, ADD])
@pytest.mark.parametrize("known", [True, False])
def test_absent_peer_exhausts_the_retries(opcode, known):
    pair = OperationPair(**FAST)
    a, b = pair.hosts
    if known:
        pair.send(READ, (0, 8))
        assert pair.statuses(0, 1) == [Status.SUCCESS]
    pair.pair.links[0].drop = lambda frame: True
    pair.send(opcode, (0, 8))
    pair.send(WRITE, (0, 8))
    assert pair.statuses(0, 2) == [Status.RETRY_EXC_ERR, Status.WR_FLUSH_ERR]
    assert b.qp.qp_state is QPState.RTS
    pair.pair.links[0].drop = None
    pair.close()


def test_untaken_responses_do_not_end_the_connection():
    """An end that only answers gives up without an error when its peer is gone, and continues when the peer is back."""
    pair = OperationPair(**FAST)
    a, b = pair.hosts
    b.recv(0, 100)
    pair.send(READ, (0, 5_000))
    gone = [True]
    for link in pair.pair.links:
        link.drop = lambda frame: gone[0] and frame[wire.BTH_OFFSET] == wire.Opcode.ACKNOWLEDGE
    a.qp.sender.timer.limit(0, 7)
    pair.settle(3_000_000)
    assert b.qp.qp_state is QPState.RTS and b.qp.sender.counts["rests"]
    gone[0] = False
    assert pair.statuses(0, 1) == [Status.SUCCESS]
    pair.send(SEND, (0, 10))
    assert pair.statuses(0, 1) == [Status.SUCCESS]
    pair.send(READ, (0, 10), end=1)
    assert pair.statuses(1, 2) == [Status.SUCCESS] * 2
    pair.close()


@pytest.mark.parametrize("opcode", [SEND, READ, ADD])
def test_peer_in_error_is_silent(opcode):
    pair = OperationPair(**FAST)
    a, b = pair.hosts
    b.recv()
    b.qp.modify(QPAttr(qp_state=QPState.ERR), QPAttrMask.STATE)
    pair.send(opcode, (0, 8))
    assert pair.statuses(0, 1) == [Status.RETRY_EXC_ERR]
    assert pair.statuses(1, 1) == [Status.WR_FLUSH_ERR]
    pair.close()


def test_local_error_waits_for_earlier_requests():
    pair = OperationPair(length=1 << 18)
    a, b = pair.hosts
    b.recv(0, 1 << 17, wr_id=1)
    b.recv(0, 10, wr_id=2)
    bad = SGE(a.mr.buf, 8, a.mr.lkey ^ 1)
    pair.send(SEND, (0, 1 << 17))
    pair.send(READ, (0, 1 << 17))
    pair.send(SEND, bad)
    pair.send(SEND, (0, 8), flags=SendFlags(0))
    assert pair.statuses(0, 4) == [Status.SUCCESS, Status.SUCCESS, Status.LOC_PROT_ERR, Status.WR_FLUSH_ERR]
    assert pair.completions(1, 1)[0].wr_id == 1
    assert b.qp.engine.receives == 1
    pair.close()


def test_rejected_write_waits_for_earlier_requests():
    """The card rejects the write at once; outstanding answers are taken first."""
    pair = OperationPair(length=1 << 18)
    a, b = pair.hosts
    b.recv(0, 1 << 17)
    b.mr.write(b"w" * 100_000)
    pair.send(SEND, (0, 100_000))
    pair.send(READ, (100_000, 100_000), at=100_000)
    pair.send(ADD, (8, 8), compare_add=1, at=200_000)
    pair.send(WRITE, (0, 10), rkey=5)
    pair.send(READ, (0, 10))
    assert pair.statuses(0, 5) == [Status.SUCCESS] * 3 + [Status.REM_ACCESS_ERR, Status.WR_FLUSH_ERR]
    assert pair.statuses(1, 1) == [Status.SUCCESS]
    assert events(pair, 1) == [EventType.QP_ACCESS_ERR]
    pair.close()


@pytest.mark.parametrize("opcode", [WRITE, WROpcode.RDMA_WRITE_WITH_IMM])
def test_empty_write_needs_the_permission_of_the_qp(opcode):
    pair = OperationPair(access=AccessFlag.REMOTE_READ)
    pair.hosts[1].recv()
    pair.send(READ, (0, 8))
    pair.send(opcode)
    assert pair.statuses(0, 2) == [Status.SUCCESS, Status.REM_ACCESS_ERR]
    assert pair.statuses(1, 1) == [Status.WR_FLUSH_ERR]


@pytest.mark.parametrize("end", [0, 1])
def test_everything_is_flushed_once_and_no_window_remains(end):
    pair = OperationPair(length=1 << 19)
    a, b = pair.hosts
    for n in range(4):
        b.recv(n << 16, 1 << 16, wr_id=100 + n)
    for n in range(12):
        pair.send((SEND, READ, ADD)[n % 3], (n << 14, 8 if n % 3 == 2 else 16_000), wr_id=n, at=n << 14)
    windows = a.context.engine.lender.windows, b.context.engine.lender.windows
    pair.run_until(lambda: all(table.open for table in windows))
    qp = pair.hosts[end].qp
    qp.modify(QPAttr(qp_state=QPState.ERR), QPAttrMask.STATE)
    got = pair.completions(end, 12 if end == 0 else 4)
    assert [wc.wr_id for wc in got] == (list(range(12)) if end == 0 else [100, 101, 102, 103])
    assert {wc.status for wc in got} <= {Status.SUCCESS, Status.WR_FLUSH_ERR} and got[-1].status
    assert not windows[end].open
    pair.close()


def test_closed_region_is_not_written():
    pair = OperationPair(length=1 << 18)
    a, b = pair.hosts
    mr = MR(b.pd, 1 << 17, AccessFlag.LOCAL_WRITE)
    b.recv(sges=[SGE(mr.buf, 1 << 17, mr.lkey)])
    pair.send(SEND, (0, 1 << 17))
    pair.run_until(lambda: b.qp.engine.operations.responder._by_sequence)
    mr.close()
    assert pair.statuses(0, 1) == [Status.REM_ACCESS_ERR]
    assert pair.statuses(1, 1) == [Status.WR_FLUSH_ERR]
    pair.close()


def test_unreadable_data_is_a_remote_operation_error():
    pair = OperationPair(length=1 << 18)
    a, b = pair.hosts
    mr = MR(b.pd, 1 << 17, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ)
    wr_at = mr.buf - b.mr.buf
    pair.send(READ, (0, 1 << 17), at=wr_at, rkey=mr.rkey)
    pair.run_until(lambda: b.qp.engine.operations.responder._unanswered)
    mr.close()
    assert pair.statuses(0, 1) == [Status.REM_OP_ERR]
    pair.close()
