"""Attributes of the QPs of a connection, derived from the offers of both ends."""

from typing import TYPE_CHECKING, Protocol

from ..connection.connection import Connection, Offer
from ..terms.enums import AccessFlag, QPAttrMask, QPState
from ..terms.errors import InvalidValue
from ..verbs.addr import GID
from ..verbs.qp import QPAttr, QPConnection, connected_attr
from ..verbs.qp_attr import RD_ATOMIC_MAX
from ..verbs.qp_states import necessary

if TYPE_CHECKING:
    from .conn_param import ConnParam
    from .identifier import Identifier

ACCESS = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC
ACK_TIMEOUT = 14     # 67 ms
RNR_TIMER = 20       # 10 ms, with retries enough for a program that posts its receive after it has sent
_STEPS = {QPState.INIT: QPState.RESET, QPState.RTR: QPState.INIT, QPState.RTS: QPState.RTR}


class End(Protocol):
    """End of a connection that has exchanged offers with the peer."""

    connection: Connection | None
    psn: int
    ack_timeout: int | None


def init_attr() -> QPAttr:
    """Return the attributes of the transition to INIT."""
    return QPAttr(qp_access_flags=ACCESS)


def offers(identifier: "Identifier", param: "ConnParam", *, answering: Offer | None = None,
           mtu: int = Offer.mtu) -> Offer:
    """Return the :class:`Offer` of a :class:`ConnParam`, for a request or for an answer.

    The answer to the Offer ``answering`` accepts no more reads and atomics than that Offer has.
    """
    timeout = ACK_TIMEOUT if identifier.ack_timeout is None else identifier.ack_timeout
    if answering is None:
        return param.offer(identifier.qp, identifier.psn, mtu=mtu, ack_timeout=timeout)
    offer = param.offer(identifier.qp, identifier.psn, mtu=answering.mtu, ack_timeout=answering.ack_timeout)
    return offer.within(answering)


def connection_attr(end: End, mine: Offer | None) -> QPAttr:
    """Return the :class:`QPAttr` that leads to RTS; ``mine`` is the Offer of this end, or None."""
    connection = end.connection
    if connection is None or connection.peers is None:
        raise InvalidValue("Failed to get QP attributes: nothing is known of the peer yet")
    peers = connection.peers
    asked = peers if connection.asked or mine is None else mine      # the Offer of the request
    depth, resources = (mine.initiator_depth, mine.responder_resources) if mine else (RD_ATOMIC_MAX, RD_ATOMIC_MAX)
    peer = QPConnection(peers.qpn, peers.psn, str(GID.of_ipv4(connection.peer_ip)))
    return connected_attr(
        peer, path_mtu=asked.mtu, sq_psn=end.psn, qp_access_flags=ACCESS,
        timeout=asked.ack_timeout if end.ack_timeout is None else end.ack_timeout,
        retry_cnt=asked.retry_count, min_rnr_timer=RNR_TIMER, rnr_retry=peers.rnr_retry_count,
        max_rd_atomic=min(depth, peers.responder_resources, RD_ATOMIC_MAX),
        max_dest_rd_atomic=min(resources, peers.initiator_depth, RD_ATOMIC_MAX))


def state_attr(end: End, state: QPState) -> tuple[QPAttr, QPAttrMask]:
    """Return the ``(QPAttr, mask)`` that bring a QP of the program from the preceding state to ``state``."""
    mine = end.connection.mine if end.connection is not None else None
    attr = init_attr() if state is QPState.INIT else connection_attr(end, mine)
    attr.qp_state = state
    return attr, necessary(_STEPS[state], state)
