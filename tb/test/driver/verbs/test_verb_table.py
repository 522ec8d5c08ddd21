"""Verbs of a QP in each state, and of other objects open and closed, with valid and invalid arguments.

An invalid argument is rejected with the error of the table in every state, and changes nothing.

================ ======================================== =========================================
verb             valid arguments                          invalid arguments
================ ======================================== =========================================
``post_send``    RESET, INIT, RTR: EINVAL; RTS: done;     no request: TypeError; too many or wrong
                 SQD: waits; ERR: flushed; closed: EINVAL SGEs, or sizes: EINVAL; operations and
                                                          flags that do not exist: EOPNOTSUPP
``post_recv``    RESET: EINVAL; ERR: flushed; closed:     the same
                 EINVAL; waits otherwise
``modify``       the next state, and RESET and ERR from   every other state: EINVAL (see
                 every state                              ``test_qp_states``)
``query``        the attributes that were set             --
``close``        always; no effect the second time        --
================ ======================================== =========================================
"""

import errno

import pytest

from weft.driver.terms.enums import AccessFlag, QPState, SendFlags, WCStatus, WROpcode
from weft.driver.terms.enums import QPAttrMask as Mask
from weft.driver.terms.errors import PyverbsError, PyverbsRDMAError
from weft.driver.verbs.cq import CQ, CompChannel
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QPAttr, connected_attr
from weft.driver.verbs.srq import SRQ, SrqAttr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.test.driver.verbs.test_qp_states import ERR, PATHS, POSTS, RESET, RTS, SQD, TABLE, Scene

EINVAL, EOPNOTSUPP = errno.EINVAL, errno.EOPNOTSUPP
NOWHERE = SGE(0, 1, 0)
BAD_SENDS = [
    (None, TypeError), (7, TypeError), (RecvWR(), TypeError), ([SendWR()], TypeError),
    (SendWR(sg=[NOWHERE] * 17), EINVAL), (SendWR(num_sge=2, sg=[NOWHERE]), EINVAL),
    (SendWR(sg=[SGE(-1, 1, 0)]), EINVAL), (SendWR(sg=[SGE(0, (1 << 31) + 1, 0)]), EINVAL), (SendWR(wr_id=-1), EINVAL),
    (SendWR(opcode=WROpcode.BIND_MW), EOPNOTSUPP), (SendWR(send_flags=1 << 20), EOPNOTSUPP),
    (SendWR(opcode=99), EINVAL),
    (SendWR(opcode=WROpcode.RDMA_WRITE, sg=[NOWHERE], send_flags=SendFlags.INLINE), EINVAL),
    (SendWR(opcode=WROpcode.RDMA_READ, sg=[NOWHERE], send_flags=SendFlags.INLINE), EINVAL),
]
BAD_RECEIVES = [
    (None, TypeError), (7, TypeError), (SendWR(), TypeError), (RecvWR(sg=[NOWHERE] * 17), EINVAL),
    (RecvWR(num_sge=2, sg=[NOWHERE]), EINVAL), (RecvWR(wr_id=1 << 64), EINVAL), (RecvWR(sg=[SGE(0, -1, 0)]), EINVAL)]
STATES = list(PATHS)


def in_state(state):
    """Return a scene whose QP is in ``state``; a QP in ERR was in RTS before."""
    scene = Scene()
    scene.bring(RTS if state is ERR else state)
    if state is ERR:
        scene.qp.modify(QPAttr(qp_state=ERR), Mask.STATE)
    if state in (RTS, SQD):
        scene.peer.to_rts(connected_attr(scene.qp.connection))
    return scene


def refused(call, error):
    """Check that ``call()`` raises a TypeError, or the verbs' error with a code, and that it has a message."""
    with pytest.raises(TypeError if error is TypeError else PyverbsRDMAError) as raised:
        call()
    assert error is TypeError or raised.value.error_code == error, raised.value
    assert len(str(raised.value)) > 10


def later(scene):
    """Let time pass; return the statuses of all completions."""
    for _ in range(100):
        scene.run(lambda: True)
        scene.pair.contexts[0].wait(1_000)
    return [wc.status for wc in scene.cqs[0].poll(9)[1]]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_bad_requests_are_rejected_in_every_state_without_effect(state):
    scene = in_state(state)
    for post, bad in ((scene.qp.post_send, BAD_SENDS), (scene.qp.post_recv, BAD_RECEIVES)):
        for request, error in bad:
            by_state = error if error is TypeError or state is not RESET and (
                post == scene.qp.post_recv or scene.qp.sender is not None) else EINVAL
            refused(lambda post=post, request=request: post(request), by_state)
    assert scene.qp.qp_state is state and not scene.qp.engine.outstanding and not scene.qp.engine.receives
    assert not later(scene)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_only_requests_before_the_bad_one_of_a_chain_are_posted(state):
    """This also holds if the second one is not a request."""
    for second in (SendWR(opcode=99), 5):
        scene = in_state(state)
        good = SendWR(1, WROpcode.RDMA_WRITE, next_wr=second, rkey=scene.mrs[1].rkey, remote_addr=scene.mrs[1].buf)
        refused(lambda scene=scene, good=good: scene.qp.post_send(good),
                EINVAL if POSTS[state][0] == "refused" or second != 5 else TypeError)
        assert later(scene) == {"refused": [], "waiting": [], "done": [WCStatus.SUCCESS],
                                "flushed": [WCStatus.WR_FLUSH_ERR]}[POSTS[state][0]]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_every_state_can_be_queried_changed_and_closed(state):
    scene = in_state(state)
    attr, init = scene.qp.query(Mask.STATE)
    assert attr.qp_state is state and init.cap.max_send_wr == 128
    for goal in QPState:
        if (state, goal) not in TABLE:
            refused(lambda goal=goal: scene.qp.modify(QPAttr(qp_state=goal), Mask.STATE), EINVAL)
    scene.qp.close()
    scene.qp.close()
    for post, request in ((scene.qp.post_send, SendWR()), (scene.qp.post_recv, RecvWR())):
        refused(lambda post=post, request=request: post(request), EINVAL)


def others():
    """Return (name, call with invalid arguments or on a closed object, error) for the objects other than QPs."""
    context = make_pair().contexts[0]
    pd, channel = PD(context), CompChannel(context)
    cq, srq, mr = CQ(context, 4, None, channel), SRQ(pd), MR(pd, 4096, AccessFlag.LOCAL_WRITE)
    gone_pd, gone_cq, gone_srq, gone_mr = PD(context), CQ(context, 4), SRQ(pd), MR(pd, 64)
    for gone in (gone_mr, gone_srq, gone_cq, gone_pd):
        gone.close()
        gone.close()
    return [
        ("CQ of nothing", lambda: CQ(context, 0), EINVAL), ("CQ too large", lambda: CQ(context, 1 << 23), EINVAL),
        ("CQ of no vector", lambda: CQ(context, 4, None, None, 1), EINVAL),
        ("acknowledge too many", lambda: cq.ack_events(1), EINVAL), ("shrink to nothing", lambda: cq.resize(0), EINVAL),
        ("resize a closed CQ", lambda: gone_cq.resize(9), EINVAL),
        ("wait without an end", lambda: channel.get_cq_event(timeout_ns=1_000), errno.ETIMEDOUT),
        ("MR of nothing", lambda: MR(pd, 0), EINVAL), ("MR of a closed PD", lambda: MR(gone_pd, 64), EINVAL),
        ("MR of odd access", lambda: MR(pd, 64, 1 << 12), EOPNOTSUPP),
        ("MR for peers only", lambda: MR(pd, 64, AccessFlag.REMOTE_WRITE), EINVAL),
        ("implicit MR", lambda: MR(pd, 64, 0, None, True), EOPNOTSUPP),
        ("rereg of nothing", lambda: mr.rereg(0), EINVAL), ("rereg of a closed MR", lambda: gone_mr.rereg(4), EINVAL),
        ("read of a closed MR", lambda: gone_mr.read(1, 0), None), ("read before an MR", lambda: mr.read(1, -1), None),
        ("SRQ of a closed PD", lambda: SRQ(gone_pd), EINVAL),
        ("receive of nothing", lambda: srq.post_recv(None), TypeError),
        ("SendWR to an SRQ", lambda: srq.post_recv(SendWR()), TypeError),
        ("receive to a closed SRQ", lambda: gone_srq.post_recv(RecvWR()), EINVAL),
        ("limit above the SRQ", lambda: srq.modify(SrqAttr(srq_limit=1 << 20), 2), EINVAL),
        ("port 2", lambda: context.query_port(2), EINVAL), ("GID 1", lambda: context.query_gid(1, 1), EINVAL)]


def test_other_verbs_reject_bad_arguments_with_the_verbs_error():
    for name, call, error in others():
        print(name)
        with pytest.raises((PyverbsError, TypeError)) as raised:
            call()
        assert error is TypeError and raised.type is TypeError or getattr(raised.value, "error_code", None) == error
        assert len(str(raised.value)) > 10
