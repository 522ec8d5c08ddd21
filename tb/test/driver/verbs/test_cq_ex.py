"""Extended completion queues: completions that are read one at a time equal those polled otherwise."""

import errno

import pytest

from weft.driver.terms.enums import SendFlags, WCFlags, WCOpcode, WCStatus, WROpcode
from weft.driver.terms.errors import InvalidValue, NotSupported, QueueOverrun
from weft.driver.terms.init_enums import CqAttrFlag, CqInitAttrMask, CqWcFlag
from weft.driver.verbs import fork
from weft.driver.verbs.cq import CompChannel
from weft.driver.verbs.cq_ex import CQEX, CqInitAttrEx, PollCqAttr
from weft.driver.verbs.enums import IBV_FORK_ENABLED
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.tb.sim.pair.operation_pair import OperationPair
from weft.tb.sim.pair.settings import ALL_ACCESS


def connected(cqe=16, channel=None):
    """Return (pair, CQ): the first end has an additional QP on an extended CQ."""
    pair = OperationPair()
    a, b = pair.hosts
    cq = CQEX(a.context, CqInitAttrEx(cqe, channel and channel(a.context), wc_flags=CqWcFlag.STANDARD_FLAGS))
    qps = QP(a.pd, rc_init_attr(cq)), QP(b.pd, rc_init_attr(b.cq))
    for qp, peer in (qps, qps[::-1]):
        qp.connect(peer.connection, qp_access_flags=ALL_ACCESS)
    for host, qp in zip(pair.hosts, qps, strict=True):
        host.qps.append(qp)
    return pair, cq


def test_completions_are_read_one_by_one():
    pair, cq = connected()
    a, _ = pair.hosts
    assert cq.start_poll() == errno.ENOENT
    cq.end_poll()
    a.recv(100, 50, wr_id=11, qp=a.qps[1])
    pair.send(WROpcode.RDMA_WRITE, (0, 8), qp=1, wr_id=1)
    pair.send(WROpcode.RDMA_READ, (0, 8), qp=1, wr_id=2)
    pair.send(WROpcode.SEND_WITH_IMM, (0, 30), end=1, qp=1, imm=77, flags=SendFlags.SOLICITED)
    pair.run_until(lambda: len(cq) == 3)
    assert cq.start_poll(PollCqAttr()) == 0
    seen = {}
    while True:
        assert cq.status is WCStatus.SUCCESS and cq.read_qp_num() == a.qps[1].qp_num
        seen[cq.wr_id] = (cq.read_opcode(), cq.read_byte_len(), cq.read_imm_data(), cq.read_wc_flags(),
                          cq.read_vendor_err(), cq.read_src_qp(), cq.read_sl(), cq.read_slid(),
                          cq.read_dlid_path_bits())
        if cq.poll_next():
            break
    cq.end_poll()
    zero = (0, 0, 0, 0, 0)
    assert seen.pop(11) == (WCOpcode.RECV, 30, 77, WCFlags.WITH_IMM, *zero)
    assert [seen[n][0] for n in (1, 2)] == [WCOpcode.RDMA_WRITE, WCOpcode.RDMA_READ] and len(seen) == 2
    pair.send(WROpcode.RDMA_WRITE, (0, 8), qp=1, wr_id=3)
    pair.run_until(lambda: len(cq))
    assert [wc.wr_id for wc in cq.poll(4)[1]] == [3]
    cq.close()
    pair.close()


def test_completion_raises_an_event_and_overrun_closes_the_queue():
    pair, cq = connected(2, CompChannel)
    cq.req_notify()
    for n in range(3):
        pair.send(WROpcode.RDMA_WRITE, (0, 8), qp=1, wr_id=n)
    pair.run_until(lambda: cq.channel.events)
    assert cq.channel.get_cq_event(cq, timeout_ns=10**8) is cq
    cq.ack_events(1)
    pair.run_until(lambda: cq.overrun)
    assert [cq.start_poll(), cq.wr_id, cq.poll_next(), cq.wr_id] == [0, 0, 0, 1]
    with pytest.raises(QueueOverrun):
        cq.poll_next()
    cq.channel.close()
    pair.close()


def test_missing_completion_fields_are_rejected():
    pair, cq = connected()
    context = cq.context
    for wrong in ({"wc_flags": CqWcFlag.EX_WITH_CVLAN}, {"comp_mask": CqInitAttrMask.PD},
                  {"comp_mask": CqInitAttrMask.FLAGS, "flags": CqAttrFlag.IGNORE_OVERRUN}):
        with pytest.raises(NotSupported, match="extended CQ"):
            CQEX(context, CqInitAttrEx(**wrong))
    with pytest.raises(TypeError, match="CqInitAttrEx"):
        CQEX(context, 5)
    CQEX(context, CqInitAttrEx(comp_mask=CqInitAttrMask.FLAGS, flags=CqAttrFlag.SINGLE_THREADED)).close()
    CQEX(context).close()
    for call in (lambda: cq.status, lambda: cq.wr_id, cq.read_opcode, cq.poll_next,
                 lambda: cq.start_poll(PollCqAttr(1)), lambda: CQEX(context, CqInitAttrEx(0))):
        with pytest.raises(InvalidValue):
            call()
    for read in (cq.read_timestamp, cq.read_completion_wallclock_ns, cq.read_cvlan, cq.read_flow_tag, cq.read_tm_info):
        with pytest.raises(NotSupported):
            read()
    cq.close()
    with pytest.raises(InvalidValue, match="closed"):
        cq.start_poll()
    pair.close()


def test_a_process_may_fork():
    fork.fork_init()
    assert fork.is_fork_initialized() == IBV_FORK_ENABLED
