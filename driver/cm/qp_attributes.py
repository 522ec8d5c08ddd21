"""Attributes of the QPs of a connection: what was asked for and offered becomes what the verbs say."""

from ..terms.enums import AccessFlag, QPState
from ..verbs.addr import GID
from ..verbs.qp import QPAttr, QPConnection, connected_attr
from ..verbs.qp_attr import RD_ATOMIC_MAX
from ..verbs.qp_states import necessary

ACCESS = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC
ACK_TIMEOUT = 14     # 67 ms
RNR_TIMER = 20       # 10 ms: a program that posts its receive when it has sent finds the peer patient, retries counted
_STEPS = {QPState.INIT: QPState.RESET, QPState.RTR: QPState.INIT, QPState.RTS: QPState.RTR}


def init_attr():
    """Of INIT."""
    return QPAttr(qp_access_flags=ACCESS)


def offers(identifier, param, *, answering=None, mtu=None):
    """The :class:`Offer` of a :class:`ConnParam`: to ask with, or to answer an Offer with, of which no more is taken
    than it has."""
    timeout = ACK_TIMEOUT if identifier.ack_timeout is None else identifier.ack_timeout
    if answering is None:
        return param.offer(identifier.qp, identifier.psn, mtu=mtu, ack_timeout=timeout)
    offer = param.offer(identifier.qp, identifier.psn, mtu=answering.mtu, ack_timeout=answering.ack_timeout)
    return offer.within(answering)


def connection_attr(identifier, mine):
    """:class:`QPAttr` that leads to RTS, with the own Offer, if there is one already."""
    connection = identifier.connection
    peers = connection.peers
    asked = peers if connection.asked else mine      # the Offer that came with the request
    depth, resources = (mine.initiator_depth, mine.responder_resources) if mine else (RD_ATOMIC_MAX, RD_ATOMIC_MAX)
    peer = QPConnection(peers.qpn, peers.psn, str(GID.of_ipv4(connection.peer_ip)))
    return connected_attr(
        peer, path_mtu=asked.mtu, sq_psn=identifier.psn, qp_access_flags=ACCESS,
        timeout=asked.ack_timeout if identifier.ack_timeout is None else identifier.ack_timeout,
        retry_cnt=asked.retry_count, min_rnr_timer=RNR_TIMER, rnr_retry=peers.rnr_retry_count,
        max_rd_atomic=min(depth, peers.responder_resources, RD_ATOMIC_MAX),
        max_dest_rd_atomic=min(resources, peers.initiator_depth, RD_ATOMIC_MAX))


def state_attr(identifier, state):
    """(QPAttr, mask) that bring a QP of the program's own from the state before to ``state``."""
    attr = init_attr() if state is QPState.INIT else connection_attr(identifier, identifier.connection.mine)
    attr.qp_state = state
    return attr, necessary(_STEPS[state], state)
