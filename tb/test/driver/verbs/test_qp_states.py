"""Every state of a QP, every target state, and every missing or excess attribute, against the table of IBTA."""

import errno

import pytest

from weft.driver.terms.enums import AccessFlag, EventType, MigState, QPState, QPType, WCStatus, WROpcode
from weft.driver.terms.enums import QPAttrMask as Mask
from weft.driver.terms.errors import PyverbsRDMAError
from weft.driver.verbs.addr import AHAttr, GlobalRoute
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPAttr, QPCap, QPInitAttr, connected_attr, rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.sim.pair.functional_pair import make_pair

RESET, INIT, RTR, RTS, SQD, SQE, ERR = list(QPState)[:7]
PATHS = {RESET: (), INIT: (INIT,), RTR: (INIT, RTR), RTS: (INIT, RTR, RTS), SQD: (INIT, RTR, RTS, SQD),
         ERR: (INIT, ERR)}

# Transcribed from the InfiniBand specification (10.3.1): attributes that a transition of a reliable connection
# requires, and attributes that it may have.
TABLE = {
    (RESET, RESET): ("", ""),
    (RESET, INIT): ("PKEY_INDEX PORT ACCESS_FLAGS", ""),
    (INIT, INIT): ("", "PKEY_INDEX PORT ACCESS_FLAGS"),
    (INIT, RTR): ("AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER", "ALT_PATH PKEY_INDEX ACCESS_FLAGS"),
    (RTR, RTS): ("TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC",
                 "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"),
    (RTS, RTS): ("", "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"),
    (RTS, SQD): ("", "EN_SQD_ASYNC_NOTIFY"),
    (SQD, RTS): ("", "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"),
    (SQD, SQD): ("", "ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE PORT AV TIMEOUT RETRY_CNT RNR_RETRY "
                     "MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC PKEY_INDEX"),
} | {(state, goal): ("", "") for state in PATHS for goal in (RESET, ERR) if (state, goal) != (RESET, ERR)}
ABSENT = Mask.ALT_PATH     # in the table, but not supported by the card


def bits(names):
    return Mask(sum(Mask[name] for name in names.split()))


class Scene:
    """Two QPs of two cards, and attributes that connect the first one with the second one."""

    def __init__(self):
        self.pair = make_pair()
        self.cqs = [CQ(context, 64) for context in self.pair.contexts]
        self.pds = [PD(context) for context in self.pair.contexts]
        self.mrs = [MR(pd, 4096, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE) for pd in self.pds]
        self.renew()

    def renew(self):
        self.qp, self.peer = (QP(pd, rc_init_attr(cq)) for pd, cq in zip(self.pds, self.cqs, strict=True))

    def attr(self, **changes):
        return connected_attr(self.peer.connection, **changes)

    def bring(self, state):
        """Provide a QP in a state: the present one, if it is in that state, or a new one."""
        if self.qp.qp_state is state and not self.qp.closed:
            return
        self.qp.close()
        self.peer.close()
        self.renew()
        for start, goal in zip((RESET, *PATHS[state]), PATHS[state], strict=False):
            self.qp.modify(self.attr(qp_state=goal), Mask.STATE | bits(TABLE[start, goal][0]))
        assert self.qp.qp_state is state

    def refused(self, mask, code=errno.EINVAL, **changes):
        before = self.qp.qp_state
        with pytest.raises(PyverbsRDMAError) as error:
            self.qp.modify(self.attr(**changes), mask)
        assert error.value.error_code == code, error.value
        assert self.qp.qp_state is before

    def write(self, length=64, opcode=WROpcode.RDMA_WRITE, **fields):
        wr = SendWR(sg=[SGE(self.mrs[0].buf, length, self.mrs[0].lkey)], opcode=opcode, **fields)
        wr.set_wr_rdma(self.mrs[1].rkey, self.mrs[1].buf)
        self.qp.post_send(wr)

    def run(self, condition):
        for _ in range(100_000):
            for context in self.pair.contexts:
                context.progress()
            if condition():
                return
            self.pair.contexts[0].wait(1_000)
        raise AssertionError("the attribute had no effect")

    def events(self, host):
        found = [event.event_type for event in self.pair.contexts[host].async_events]
        self.pair.contexts[host].async_events.clear()
        return found


@pytest.mark.parametrize("start", PATHS, ids=lambda state: state.name)
def test_every_transition_is_as_in_the_table(start):
    scene = Scene()
    for goal in QPState:
        scene.bring(start)
        if (start, goal) not in TABLE:
            scene.refused(Mask.STATE | Mask(sum(Mask)) & ~Mask.CUR_STATE, qp_state=goal)
            scene.refused(Mask.STATE, qp_state=goal)
            continue
        need, may = map(bits, TABLE[start, goal])
        for bit in need:
            scene.refused(Mask.STATE | need & ~bit, qp_state=goal)
        for bit in (*Mask, Mask(1 << 30)):
            if not bit & (need | may | Mask.STATE):
                scene.refused(Mask.STATE | need | bit, qp_state=goal)
        scene.qp.modify(scene.attr(qp_state=goal, cur_qp_state=start), Mask.STATE | need | may & ~ABSENT)
        assert scene.qp.qp_state is goal


def test_attributes_outside_the_mask_are_ignored():
    scene = Scene()
    nonsense = {"timeout": 99, "retry_cnt": -1, "path_mtu": 77, "qp_access_flags": "all", "rq_psn": None}
    attr = scene.attr(qp_state=INIT, **nonsense | {"qp_access_flags": 1})
    scene.qp.modify(attr, Mask.STATE | bits(TABLE[RESET, INIT][0]))
    assert scene.qp.attr.timeout == 0 and scene.qp.attr.qp_access_flags == 1
    scene.qp.modify(scene.attr(qp_state=ERR, **nonsense), Mask.STATE)


@pytest.mark.parametrize(("mask", "changes"), [
    ("PORT", {"port_num": 0}), ("PORT", {"port_num": 2}), ("PKEY_INDEX", {"pkey_index": 1}),
    ("ACCESS_FLAGS", {"qp_access_flags": 16}), ("ACCESS_FLAGS", {"qp_access_flags": -1}),
    ("PATH_MTU", {"path_mtu": 0}), ("PATH_MTU", {"path_mtu": 6}), ("RQ_PSN", {"rq_psn": 1 << 24}),
    ("DEST_QPN", {"dest_qp_num": -1}), ("MAX_DEST_RD_ATOMIC", {"max_dest_rd_atomic": 17}),
    ("MIN_RNR_TIMER", {"min_rnr_timer": 32}), ("AV", {"ah_attr": AHAttr()}),
    ("AV", {"ah_attr": AHAttr(is_global=1, gr=GlobalRoute("fe80:0000:0000:0000:0000:0000:0000:0001"))}),
    ("TIMEOUT", {"timeout": 32}), ("RETRY_CNT", {"retry_cnt": 8}), ("RNR_RETRY", {"rnr_retry": 8}),
    ("SQ_PSN", {"sq_psn": 1 << 24}), ("MAX_QP_RD_ATOMIC", {"max_rd_atomic": 17}),
    ("CUR_STATE", {"cur_qp_state": QPState.RTS})], ids=str)
def test_attributes_out_of_range_are_rejected(mask, changes):
    scene = Scene()
    start, goal = next(path for path in ((RESET, INIT), (INIT, RTR), (RTR, RTS)) if bits(mask) & bits(
        " ".join(TABLE[path])))
    scene.bring(start)
    need = Mask.STATE | bits(TABLE[start, goal][0]) | bits(mask)
    scene.refused(need, qp_state=goal, **changes)
    scene.qp.modify(scene.attr(qp_state=goal, cur_qp_state=start), need)


@pytest.mark.parametrize(("mask", "changes"), [
    ("ALT_PATH", {}), ("PATH_MIG_STATE", {"path_mig_state": MigState.ARMED})], ids=str)
def test_unsupported_features_are_rejected(mask, changes):
    scene = Scene()
    scene.bring(RTS)
    scene.refused(bits(mask), errno.EOPNOTSUPP, **changes)


@pytest.mark.parametrize("kind", sorted(set(QPType) - {QPType.RC, QPType.UD}), ids=lambda kind: kind.name)
def test_other_kinds_of_qps_are_rejected(kind):
    scene = Scene()
    before = len(scene.pds[0].qps), len(scene.cqs[0].qps)
    with pytest.raises(PyverbsRDMAError, match=kind.name) as error:
        QP(scene.pds[0], QPInitAttr(qp_type=kind, scq=scene.cqs[0], rcq=scene.cqs[0]))
    assert error.value.error_code == errno.EOPNOTSUPP
    assert (len(scene.pds[0].qps), len(scene.cqs[0].qps)) == before


def test_defaults_are_those_of_pyverbs():
    init, attr, cap, send, receive = QPInitAttr(), QPAttr(), QPCap(), SendWR(), RecvWR()
    assert list(vars(cap).items()) == [("max_send_wr", 1), ("max_recv_wr", 10), ("max_send_sge", 1),
                                       ("max_recv_sge", 1), ("max_inline_data", 0)]
    assert init.qp_type is QPType.UD and init.sq_sig_all == 1 and init.cap == cap
    assert (init.qp_context, init.scq, init.rcq, init.srq) == (None,) * 4
    assert (attr.qp_state, attr.cur_qp_state, attr.port_num, attr.path_mtu) == (INIT, RESET, 1, 3)
    assert not any(value for name, value in vars(attr).items() if name not in {
        "qp_state", "port_num", "path_mtu", "cap", "ah_attr", "alt_ah_attr", "outstanding_log2"})
    assert (send.opcode, send.send_flags, send.imm_data, send.num_sge) == (WROpcode.SEND, 2, 0, 0)
    assert QPAttr(RTR, INIT, 1, 5) == QPAttr(qp_state=RTR, cur_qp_state=INIT, port_num=1, path_mtu=5)
    assert SendWR(1, WROpcode.RDMA_READ, 0, 4).imm_data == 4 and receive.num_sge == 0


def test_drained_qp_finishes_started_requests_and_waits():
    scene = Scene()
    scene.bring(RTS)
    scene.peer.to_rts(connected_attr(scene.qp.connection))
    scene.write(wr_id=1, send_flags=2)
    scene.pair.contexts[0].progress()
    scene.qp.modify(QPAttr(qp_state=SQD, en_sqd_async_notify=1), Mask.STATE | Mask.EN_SQD_ASYNC_NOTIFY)
    assert scene.qp.query()[0].sq_draining == 1
    scene.write(wr_id=2, send_flags=2)
    scene.run(lambda: scene.pair.contexts[0].async_events)
    assert scene.events(0) == [EventType.SQ_DRAINED] and scene.qp.query()[0].sq_draining == 0
    assert [wc.wr_id for wc in scene.cqs[0].poll(4)[1]] == [1]
    for _ in range(100):
        scene.run(lambda: True)
        scene.pair.contexts[0].wait(1_000)
    assert not len(scene.cqs[0]), "a request began while the QP was drained"
    scene.qp.modify(QPAttr(qp_state=RTS), Mask.STATE)
    scene.run(lambda: len(scene.cqs[0]))
    assert [wc.wr_id for wc in scene.cqs[0].poll(4)[1]] == [2]


def test_first_packet_of_the_peer_raises_an_event_in_rtr():
    scene = Scene()
    scene.bring(RTS)
    scene.peer.to_rtr(connected_attr(scene.qp.connection))
    scene.write(send_flags=2)
    scene.run(lambda: len(scene.cqs[0]))
    assert scene.events(1) == [EventType.COMM_EST]


def test_rejected_access_raises_an_event_at_the_responder():
    scene = Scene()
    scene.bring(RTS)
    scene.peer.to_rts(connected_attr(scene.qp.connection, qp_access_flags=AccessFlag(0)))
    scene.write(send_flags=2)
    scene.run(lambda: len(scene.cqs[0]) and scene.peer.qp_state is ERR)
    assert scene.events(1) == [EventType.QP_ACCESS_ERR]


# Outcome of a send and of a receive that is posted in a state: refused, waiting, done, or flushed.
POSTS = {RESET: ("refused", "refused"), INIT: ("refused", "waiting"), RTR: ("refused", "waiting"),
         RTS: ("done", "waiting"), SQD: ("waiting", "waiting"), ERR: ("flushed", "flushed")}


@pytest.mark.parametrize("state", POSTS, ids=lambda state: state.name)
def test_request_is_accepted_according_to_the_state(state):
    scene = Scene()
    scene.bring(state)
    if state is ERR:       # a QP that could never send rejects sends; take one that was in RTS
        scene.qp.close()
        scene.renew()
        scene.bring(RTS)
        scene.qp.modify(QPAttr(qp_state=ERR), Mask.STATE)
    if scene.qp.qp_state in (RTS, SQD):
        scene.peer.to_rts(connected_attr(scene.qp.connection))
    for kind, post in (("send", lambda: scene.write(wr_id=1)), ("receive", lambda: scene.qp.post_recv(RecvWR(2)))):
        subject = POSTS[state][kind == "receive"]
        if subject == "refused":
            with pytest.raises(PyverbsRDMAError) as error:
                post()
            assert error.value.error_code == errno.EINVAL
            continue
        post()
        for _ in range(200):
            scene.run(lambda: True)
            scene.pair.contexts[0].wait(1_000)
        found = [wc.status for wc in scene.cqs[0].poll(4)[1]]
        assert found == {"waiting": [], "done": [WCStatus.SUCCESS], "flushed": [WCStatus.WR_FLUSH_ERR]}[subject], kind


def test_closed_qp_accepts_nothing():
    scene = Scene()
    scene.bring(RTS)
    scene.qp.close()
    for call in (lambda: scene.write(), lambda: scene.qp.post_recv(RecvWR()), lambda: scene.qp.modify(QPAttr(), 1),
                 lambda: scene.qp.to_init(QPAttr()), scene.qp.reset, lambda: scene.qp.connect(scene.peer.connection)):
        with pytest.raises(PyverbsRDMAError) as error:
            call()
        assert error.value.error_code == errno.EINVAL
