"""Restrictions of a QP take effect: in ERR it accepts nothing, and revoked access is gone."""

import pytest

from weft.driver.terms.enums import AccessFlag, QPAttrMask, QPState, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.qp import QPAttr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import abi, wire
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair

LENGTH = 4_096
ERR = QPAttr(qp_state=QPState.ERR)
TIMEOUT = {"timeout": 5, "retry_cnt": 1}     # 131 µs


class Scene:
    """Two connected QPs; the first one writes."""

    def __init__(self):
        self.pair = make_pair()
        self.ends = make_endpoints(self.pair, LENGTH, path_mtu=1, **TIMEOUT)
        self.qps = [end.qps[0] for end in self.ends]
        self.card = self.pair.devices[1].card
        self.ends[0].mr.write(b"x" * LENGTH)

    def run(self, microseconds=60):
        for _ in range(microseconds):
            for context in self.pair.contexts:
                context.progress()
            self.pair.loop.run(self.pair.loop.now_ns + 1_000)

    def write(self, wr_id, length=LENGTH, opcode=WROpcode.RDMA_WRITE):
        me, you = self.ends
        wr = SendWR(wr_id, sg=[SGE(me.mr.buf, length, me.mr.lkey)], opcode=opcode, send_flags=SendFlags.SIGNALED)
        wr.set_wr_rdma(you.mr.rkey, you.mr.buf)
        self.qps[0].post_send(wr)

    def completions(self, host):
        return [(wc.wr_id, wc.status) for wc in self.ends[host].cq.take(8)[1]]

    @property
    def written(self):
        return self.ends[1].mr.read(LENGTH, 0) != bytes(LENGTH)

    @property
    def entry(self):
        (entry,) = self.card.tables.qps.values()
        return entry

    def close(self):
        close_and_check(self.pair, self.ends)


@pytest.mark.parametrize("length", [LENGTH, 0])
def test_qp_in_err_takes_no_write(length):
    scene = Scene()
    scene.qps[1].post_recv(RecvWR(4))
    scene.qps[1].modify(ERR, QPAttrMask.STATE)
    assert scene.entry.state is abi.QpState.ERR, "the call returned before the card obeyed"
    assert scene.completions(1) == [(4, WCStatus.WR_FLUSH_ERR)]
    scene.write(1, length, WROpcode.RDMA_WRITE_WITH_IMM)
    scene.run(500)
    assert scene.completions(0) == [(1, WCStatus.RETRY_EXC_ERR)] and not scene.written
    assert scene.card.counters["drop_unknown_qp"] > 1 and not scene.card.counters["rx_packets"]
    assert not scene.completions(1) and not scene.pair.contexts[1].counts["ACKNOWLEDGE"]
    scene.close()


def test_qp_with_a_failed_request_takes_no_write():
    scene = Scene()
    scene.pair.links[1].drop = lambda frame: True      # the write of the second host is lost
    other = scene.ends[1]
    wr = SendWR(7, sg=[SGE(other.mr.buf, 8, other.mr.lkey)], send_flags=SendFlags.SIGNALED, opcode=WROpcode.RDMA_WRITE)
    wr.set_wr_rdma(scene.ends[0].mr.rkey, scene.ends[0].mr.buf)
    scene.qps[1].post_send(wr)
    scene.run(500)
    assert scene.completions(1) == [(7, WCStatus.RETRY_EXC_ERR)] and scene.entry.state is abi.QpState.ERR
    scene.write(1)
    scene.run(500)
    assert not scene.written
    scene.completions(0)
    scene.close()


def test_packets_during_the_transition_to_err_are_not_acknowledged():
    """The card has accepted the whole message; the driver has not polled yet."""
    scene = Scene()
    scene.write(1)
    scene.pair.contexts[0].progress()
    scene.pair.loop.run(scene.pair.loop.now_ns + 20_000)
    assert scene.written and scene.card.counters["rx_packets"] == LENGTH // 256
    scene.qps[1].modify(ERR, QPAttrMask.STATE)
    scene.run(500)
    assert scene.completions(0) == [(1, WCStatus.RETRY_EXC_ERR)]
    assert not scene.pair.contexts[1].counts["ACKNOWLEDGE"]
    scene.close()


def test_revoked_access_is_effective_and_can_be_restored():
    scene = Scene()
    closed, opened = (QPAttr(qp_access_flags=flags) for flags in (AccessFlag.LOCAL_WRITE, AccessFlag.REMOTE_WRITE))
    scene.qps[1].modify(closed, QPAttrMask.ACCESS_FLAGS)
    assert scene.entry.access == int(AccessFlag.LOCAL_WRITE) and scene.qps[1].qp_state is QPState.RTS
    scene.qps[1].modify(opened, QPAttrMask.ACCESS_FLAGS)
    scene.write(1)
    scene.run()
    assert scene.completions(0) == [(1, WCStatus.SUCCESS)] and scene.written
    scene.qps[1].modify(closed, QPAttrMask.ACCESS_FLAGS)
    assert scene.qps[1].query()[0].qp_access_flags is AccessFlag.LOCAL_WRITE
    scene.ends[1].mr.write(bytes(LENGTH))
    scene.write(2)
    scene.run(200)
    assert scene.completions(0) == [(2, WCStatus.REM_ACCESS_ERR)] and not scene.written
    scene.close()


def test_lost_nak_is_repeated_after_the_card_enters_err():
    scene = Scene()
    naks = []

    def lose(frame):
        if frame[wire.BTH_OFFSET] == wire.Opcode.ACKNOWLEDGE:
            naks.append(frame)
        return len(naks) in (1, 2)

    scene.pair.links[1].drop = lose
    scene.qps[1].modify(QPAttr(qp_access_flags=AccessFlag(0)), QPAttrMask.ACCESS_FLAGS)
    scene.write(1)
    scene.run(400)
    assert len(naks) == 3 and scene.entry.state is abi.QpState.ERR
    assert scene.completions(0) == [(1, WCStatus.REM_ACCESS_ERR)] and not scene.written
    scene.close()


def test_qp_in_err_can_be_reset_and_connected_again():
    scene = Scene()
    for qp in scene.qps:
        qp.modify(ERR, QPAttrMask.STATE)
        qp.reset()
    for end, peer in (scene.ends, scene.ends[::-1]):
        end.connect(peer.connections, path_mtu=1, **TIMEOUT)
    assert scene.entry.state is abi.QpState.RTS
    scene.write(3)
    scene.run()
    assert scene.completions(0) == [(3, WCStatus.SUCCESS)] and scene.written
    scene.close()
