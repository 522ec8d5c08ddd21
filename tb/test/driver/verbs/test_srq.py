"""Shared receive queues."""

import random

import pytest

from weft.driver.terms.enums import EventType, QPAttrMask, QPState, SrqAttrMask, WCStatus, WROpcode
from weft.driver.terms.errors import InvalidValue, NotSupported, QueueFull
from weft.driver.verbs.qp import QPAttr
from weft.driver.verbs.srq import SRQ, SrqAttr, SrqInitAttr, SrqInitAttrEx
from weft.driver.verbs.wr import RecvWR
from weft.tb.sim.pair.operation_pair import OperationPair


def make(qps=4, max_wr=100, **options):
    return OperationPair(qps=qps, srq=SrqInitAttr(SrqAttr(max_wr, 16)), **options)


def test_each_receive_is_taken_once_by_the_first_message():
    pair = make(length=1 << 20)
    a, b = pair.hosts
    rng = random.Random(1)
    a.mr.write(rng.randbytes(1 << 20))
    lengths = [rng.choice([0, 10, 300, 7_000]) for _ in range(60)]
    for n, length in enumerate(lengths):
        pair.send(WROpcode.SEND_WITH_IMM, (10_000 * n, length), qp=n % 4, imm=n)
    pair.settle()
    assert not len(b.cq)
    for n in range(60):
        b.recv(10_000 * n, 8_000, wr_id=n)
    got = pair.completions(1, 60)
    assert sorted(wc.wr_id for wc in got) == list(range(60))
    assert pair.statuses(0, 60) == [WCStatus.SUCCESS] * 60
    by_qp = {}
    for wc in got:
        n = wc.imm_data
        assert wc.byte_len == lengths[n] and wc.qp_num == b.qps[n % 4].qp_num
        assert b.mr.read(wc.byte_len, 10_000 * wc.wr_id) == a.mr.read(wc.byte_len, 10_000 * n)
        by_qp.setdefault(wc.qp_num, []).append(n)
    assert all(numbers == sorted(numbers) for numbers in by_qp.values())
    pair.close()


@pytest.mark.parametrize("max_recv_wr", [0, 1 << 20, 1 << 21, (1 << 32) - 1])
@pytest.mark.parametrize("max_recv_sge", [0, 17, (1 << 32) - 1])
def test_receive_capacities_of_a_qp_with_an_srq_are_ignored(max_recv_wr, max_recv_sge):
    pair = make(qps=1, cap={"max_recv_wr": max_recv_wr, "max_recv_sge": max_recv_sge})
    a, b = pair.hosts
    attr, init = b.qp.query()
    assert (attr.cap.max_recv_wr, attr.cap.max_recv_sge, init.cap.max_recv_wr, init.cap.max_recv_sge) == (0,) * 4
    b.recv(0, 100, sges=[b.sge(0, 50), b.sge(60, 50)])
    pair.send(WROpcode.SEND, (0, 100))
    assert pair.statuses(1, 1) == pair.statuses(0, 1) == [WCStatus.SUCCESS]
    pair.close()


def test_qp_in_error_flushes_its_receives_only():
    pair = make(qps=2)
    a, b = pair.hosts
    for n in range(5):
        b.recv(0, 100, wr_id=n)
    pair.send(WROpcode.SEND, (0, 101), qp=0)
    assert pair.statuses(0, 1) == [WCStatus.REM_INV_REQ_ERR]
    assert [(wc.wr_id, wc.status) for wc in pair.completions(1, 1)] == [(0, WCStatus.LOC_LEN_ERR)]
    pair.send(WROpcode.SEND, (0, 100), qp=1)
    assert [(wc.wr_id, wc.status) for wc in pair.completions(1, 1)] == [(1, WCStatus.SUCCESS)]
    pair.completions(0, 1)
    events = [event.event_type for event in b.context.async_events]
    assert events.count(EventType.QP_LAST_WQE_REACHED) == 1
    pair.close()


def test_limit_makes_one_event():
    pair = make()
    b = pair.hosts[1]
    for n in range(6):
        b.recv(wr_id=n)
    b.srq.modify(SrqAttr(srq_limit=4), SrqAttrMask.LIMIT)
    assert b.srq.query().srq_limit == 4
    for n in range(5):
        pair.send(WROpcode.SEND, (0, 8), qp=n % 4)
    pair.completions(1, 5)
    pair.completions(0, 5)
    assert [(e.event_type, e.element) for e in b.context.async_events] == [(EventType.SRQ_LIMIT_REACHED, b.srq)]
    assert b.srq.query() == SrqAttr(100, 16, 0)
    pair.close()


def test_bad_use_is_rejected():
    pair = make(max_wr=2)
    b = pair.hosts[1]
    with pytest.raises(InvalidValue):
        b.qp.post_recv(RecvWR(1))
    bad = RecvWR()
    with pytest.raises(QueueFull):
        b.srq.post_recv(RecvWR(1, next_wr=RecvWR(2, next_wr=RecvWR(3))), bad)
    assert bad == RecvWR(3)
    for attr, mask in ((SrqAttr(1), SrqAttrMask.MAX_WR), (SrqAttr(0), SrqAttrMask.MAX_WR), (SrqAttr(5), 4)):
        with pytest.raises(InvalidValue):
            b.srq.modify(attr, mask)
    b.srq.modify(SrqAttr(5), SrqAttrMask.MAX_WR)
    assert b.srq.query().max_wr == 5
    b.srq.modify(SrqAttr(2), SrqAttrMask.MAX_WR)
    with pytest.raises(InvalidValue):
        b.srq.modify(SrqAttr(srq_limit=3), SrqAttrMask.LIMIT)
    b.qp.modify(QPAttr(qp_state=QPState.ERR), QPAttrMask.STATE)
    assert len(b.srq.receives) == 2 and not len(b.cq)
    b.srq.close()
    assert b.qp.closed and b.srq not in b.qp.pd.srqs
    for call in (lambda: b.srq.post_recv(RecvWR(1)), b.srq.query, b.srq.get_srq_num):
        with pytest.raises(InvalidValue):
            call()
    pair.close()


def test_a_context_makes_an_srq_with_a_pd():
    pair = make()
    context, pd = pair.hosts[0].context, pair.hosts[0].qp.pd
    before = list(pd.srqs)
    srq = SRQ(context, SrqInitAttrEx(7, 2, 3, pd=pd))
    assert srq.query() == SrqAttr(7, 2, 3) and srq in pd.srqs and srq.get_srq_num()
    srq.close()
    for attr, kind in ((SrqInitAttrEx(), InvalidValue), (SrqInitAttr(), InvalidValue),
                       (SrqInitAttrEx(pd=context), InvalidValue), (SrqInitAttrEx(pd=pd, srq_type=1), NotSupported),
                       (SrqInitAttrEx(0, pd=pd), InvalidValue), (SrqInitAttrEx(5, 17, pd=pd), InvalidValue),
                       (SrqInitAttrEx(5, srq_limit=6, pd=pd), InvalidValue)):
        with pytest.raises(kind):
            SRQ(context, attr)
    assert list(pd.srqs) == before
    pair.close()
