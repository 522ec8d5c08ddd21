"""TIME-WAIT of a destroyed QP, whose peer has not received the last acknowledgement."""

import pytest

from weft.driver.receive.receiver import LAST_ANSWERS_MAX
from weft.driver.terms.enums import QPAttrMask, QPState, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPAttr, rc_init_attr
from weft.hdl.contract import wire
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.test.driver.faulty_link import Scenario, opcode_of

SEND, WRITE = WROpcode.SEND, WROpcode.RDMA_WRITE
FAST = {"timeout": 9, "retry_cnt": 1}      # time-out after 4 ms
KEPT = 4


def scenario(kept=KEPT, **attributes):
    """Return (pair, lost, flag).

    ACKNOWLEDGE frames of the second host are lost until ``flag[0]`` is cleared; ``lost`` collects them.
    """
    pair = Scenario(pair=make_pair(ContextConfig(time_wait_qps=kept)), **FAST | attributes)
    lost, blocked = [], [True]

    def change(frame):
        if blocked[0] and opcode_of(frame) == wire.Opcode.ACKNOWLEDGE:
            lost.append(frame)
            return None
        return frame

    pair.on_the_way(1, change)
    return pair, lost, blocked


def arrives(pair, opcode=SEND, length=700):
    """Deliver a message to the second host; the first one does not receive the acknowledgement."""
    pair.me.mr.write(b"m" * length)
    pair.peer.recv(0, length)
    pair.ask(opcode, length)
    if opcode is SEND:
        assert pair.statuses(1, 1) == [WCStatus.SUCCESS]
    else:
        pair.run_until(lambda: pair.peer.mr.read(length, 0) == b"m" * length)


def gone(pair, lost, blocked):
    """Destroy the QP of the second host before its acknowledgement arrives; then stop losing frames."""
    pair.run_until(lambda: lost)
    assert pair.me.qp.engine.outstanding == 1
    pair.peer.qp.close()
    pair.settle()      # the frames in flight are lost
    blocked[0] = False


@pytest.mark.parametrize("opcode", [SEND, WRITE])
def test_peer_gets_the_last_acknowledgement_of_a_destroyed_qp(opcode):
    pair, lost, blocked = scenario()
    arrives(pair, opcode)
    gone(pair, lost, blocked)
    assert pair.outcome() is WCStatus.SUCCESS
    assert len(pair.peer.context.engine.time_wait) == 1
    pair.close()


def test_peer_times_out_without_time_wait():
    pair, lost, blocked = scenario(kept=0)
    arrives(pair)
    gone(pair, lost, blocked)
    assert pair.outcome() is WCStatus.RETRY_EXC_ERR
    pair.close()


def test_qp_in_error_repeats_its_last_acknowledgement():
    pair, lost, blocked = scenario()
    arrives(pair)
    pair.run_until(lambda: lost)
    pair.peer.qp.modify(QPAttr(qp_state=QPState.ERR), QPAttrMask.STATE)
    blocked[0] = False
    assert pair.outcome() is WCStatus.SUCCESS
    pair.ask(SEND, 10)
    assert pair.outcome() is WCStatus.RETRY_EXC_ERR
    pair.close()


def test_later_packets_are_not_accepted():
    """Not written, not acknowledged, and failed at the peer; the earlier acknowledgement does not cover it."""
    pair, lost, blocked = scenario()
    asked, mute = [], [True]

    def change(frame):
        asked.extend(frame for _ in range(opcode_of(frame) == wire.Opcode.PROBE))
        return None if mute[0] and opcode_of(frame) == wire.Opcode.PROBE else frame

    pair.on_the_way(0, change)
    arrives(pair)
    gone(pair, lost, blocked)
    pair.me.mr.write(b"n" * 700)
    pair.ask(WRITE, 700)
    count = len(asked)
    pair.run_until(lambda: len(asked) > count)
    mute[0] = False
    assert pair.statuses(0, 2) == [WCStatus.RETRY_EXC_ERR, WCStatus.WR_FLUSH_ERR]
    assert pair.peer.mr.read(700, 0) == b"m" * 700
    assert pair.peer.cq.take(8)[1] == []
    pair.close()


def test_message_without_a_receive_is_not_acknowledged():
    pair, _lost, blocked = scenario()
    blocked[0] = False
    pair.ask(SEND, 700)
    pair.settle()
    pair.peer.qp.close()
    assert pair.outcome() is WCStatus.RETRY_EXC_ERR
    pair.close()


def test_qp_with_missing_packets_does_not_enter_time_wait():
    """The peer has sent more than was acknowledged, and the QP's holes occupy blocks."""
    pair, lost, blocked = scenario()
    arrives(pair)
    pair.run_until(lambda: lost)
    blocked[0] = False
    assert pair.outcome() is WCStatus.SUCCESS
    again, first = [], []

    def change(frame):
        if opcode_of(frame) in wire.DATA_OPCODES:
            again.extend([frame] * (opcode_of(frame) in wire.RETX_OPCODES))
            first.append(frame)
            return None if again or len(first) == 1 else frame      # the first packet and its repetitions
        return frame

    pair.on_the_way(0, change)
    pair.ask(WRITE, 700)
    pair.run_until(lambda: again)
    assert pair.peer.qp.receiver.holes.oldest is not None
    pair.peer.qp.close()
    assert len(pair.peer.context.engine.time_wait) == 0
    assert pair.outcome() is WCStatus.RETRY_EXC_ERR
    pair.close()


def test_oldest_time_wait_qp_is_evicted():
    """At most ``KEPT`` QPs are in TIME-WAIT, and they never prevent the creation of a QP."""
    pair = Scenario(qps=6, pair=make_pair(ContextConfig(time_wait_qps=KEPT)), **FAST)
    context = pair.peer.context
    engine = context.engine
    for n in range(6):
        if n:
            pair.peer.recv(0, 8, qp=pair.peer.qps[n])
            pair.send(SEND, (0, 8), qp=n)
            assert pair.statuses(0, 1) == pair.statuses(1, 1) == [WCStatus.SUCCESS]
        pair.peer.qps[n].close()
        assert len(engine.time_wait) == min(n + 1, KEPT)
    assert len(engine.qps) == KEPT
    pd, cq = PD(context), CQ(context, 8)
    many = [QP(pd, rc_init_attr(cq)) for _ in range(engine.qps.most)]
    assert len(engine.time_wait) == 0
    for qp in many:
        qp.close()
    pd.close()
    cq.close()
    pair.close()


def test_endless_probes_are_answered_for_a_limited_time():
    pair, lost, _blocked = scenario(timeout=0)
    arrives(pair)
    pair.run_until(lambda: lost)
    pair.peer.qp.close()
    counts = pair.peer.context.engine.counts
    before = counts["ACKNOWLEDGE"]
    pair.run_until(lambda: counts["ACKNOWLEDGE"] - before == LAST_ANSWERS_MAX, 10**9)
    asked = pair.me.qp.sender.timer.probes
    pair.run_until(lambda: pair.me.qp.sender.timer.probes == asked + 3)
    assert counts["ACKNOWLEDGE"] - before == LAST_ANSWERS_MAX
    pair.close()


def test_card_reset_clears_time_wait():
    pair, lost, blocked = scenario()
    arrives(pair)
    gone(pair, lost, blocked)
    pair.peer.context.reset()
    assert len(pair.peer.context.engine.time_wait) == len(pair.peer.context.engine.qps) == 0
    pair.close()
