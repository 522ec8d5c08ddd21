"""State machine of one connection between two hosts, from request to end: messages and time in, messages out."""

import enum
import errno
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ..protocol.timer import ack_timeout_ns
from .messages import Attribute, ReferredMessage, RejectReason

if TYPE_CHECKING:
    from .agent import Agent

SERVICE_TIMEOUT = 18        # time for the program to answer, after which the peer gets another MRA: 1.1 s
SERVICE_TIMEOUT_MAX = 22    # limit of the service time-out that a peer may request


class State(enum.Enum):
    """State of a connection, as in IBTA 1.7, figures 148 and 149."""

    IDLE = enum.auto()
    REQ_SENT = enum.auto()
    REQ_RCVD = enum.auto()      # waits for the program to accept or to reject
    REP_SENT = enum.auto()
    REP_RCVD = enum.auto()      # waits for the program to get its QP ready
    ESTABLISHED = enum.auto()
    DREQ_SENT = enum.auto()
    TIMEWAIT = enum.auto()      # packets of its QPs may still be in flight
    CLOSED = enum.auto()


class CmNotice(enum.Enum):
    """Notification for the owner of a connection."""

    RESPONSE = enum.auto()
    ESTABLISHED = enum.auto()
    REJECTED = enum.auto()
    UNREACHABLE = enum.auto()
    DISCONNECTED = enum.auto()
    TIMEWAIT_EXIT = enum.auto()


@dataclass(frozen=True)
class ResponseTimeout:
    """Response time-out of the peer, 4.096 µs · 2^``response_timeout``, and number of retries."""

    response_timeout: int = 14
    retries: int = 15


@dataclass(frozen=True)
class Offer:
    """Parameters of a QP and the demands of its end (IBTA 12.7).

    In an answer ``mtu, ack_timeout`` and ``retry_count`` are those of the request.
    """

    qpn: int
    psn: int
    responder_resources: int = 1
    initiator_depth: int = 1
    rnr_retry_count: int = 7
    srq: int = 0
    mtu: int = 3
    ack_timeout: int = 14
    retry_count: int = 7

    def within(self, asked: "Offer") -> "Offer":
        """Return a copy with no more reads and atomics than ``asked`` has."""
        return replace(self, responder_resources=min(self.responder_resources, asked.initiator_depth),
                       initiator_depth=min(self.initiator_depth, asked.responder_resources))


_WAITING = {State.REQ_SENT: Attribute.REQ, State.REP_SENT: Attribute.REP, State.DREQ_SENT: Attribute.DREQ}
_LIVE = {State.REP_SENT, State.REP_RCVD, State.ESTABLISHED}


def ignore(connection: "Connection", notice: CmNotice) -> None:
    """Ignore a notification."""


class Connection:
    """One end of a connection: state, offers of both ends, and timer.

    Parameters
    ----------
    agent : Agent
        Has ``send(connection, kind, private_data, **fields)``, ``wake(connection)``, ``forget(connection)`` and
        ``connected(peer_ip, qpn)``.
    peer_ip, local_id, tid : int
    timeout : ResponseTimeout
    notify : callable(connection, CmNotice)

    Attributes
    ----------
    state : State
    remote_id : int
        0 until it is known.
    mine, peers : Offer or None
    asked : bool
        The peer requested the connection.
    status : int
        With UNREACHABLE a negative errno, with REJECTED the reason.
    private_data : bytes
        Private data of the message that caused the last notification.
    deadline : int or None
        Time of the next call of :meth:`progress`.
    """

    def __init__(self, agent: "Agent", peer_ip: int, local_id: int, tid: int, timeout: ResponseTimeout,
                 notify: Callable[["Connection", CmNotice], object]) -> None:
        self.agent, self.peer_ip, self.local_id, self.tid, self.notify = agent, peer_ip, local_id, tid, notify
        self.timeout = timeout
        self.state, self.remote_id = State.IDLE, 0
        self.peer_mac: int | None = None
        self.mine: Offer | None = None
        self.peers: Offer | None = None
        self.asked = False
        self.status, self.private_data, self.peer_port, self.service_id = 0, b"", 0, 0
        self.deadline: int | None = None
        self._sent_message: tuple[Attribute, bytes, dict[str, int]] | None = None
        self._left = self._extensions = 0
        self._peer_rests_until = self._pause = 0

    @property
    def _interval(self) -> int:
        return ack_timeout_ns(self.timeout.response_timeout)

    def _send_message(self, kind: Attribute, private_data: bytes = b"", **fields: int) -> None:
        self.agent.send(self, kind, private_data, **fields)

    def _ask(self, state: State, kind: Attribute, private_data: bytes, now: int, **fields: int) -> None:
        """Send a message that requires an answer, and start its timer."""
        self.state, self._sent_message = state, (kind, private_data, fields)
        self._left = self._extensions = self.timeout.retries
        self._send_message(kind, private_data, **fields)
        self._wait(now + self._interval)

    def _wait(self, deadline: int) -> None:
        self.deadline = deadline
        self.agent.wake(self)

    def _notice(self, notice: CmNotice, status: int = 0, private_data: bytes = b"") -> None:
        self.status, self.private_data = status, private_data
        self.notify(self, notice)

    # ------------------------------------------------------------------------------- calls of the owner

    def request(self, offer: Offer, private_data: bytes, now: int, **fields: int) -> None:
        """Request the connection: IDLE to REQ_SENT. ``fields`` are those of REQ that the agent provides."""
        self.mine = offer
        self._ask(State.REQ_SENT, Attribute.REQ, private_data, now, qpn=offer.qpn, psn=offer.psn,
                  responder_resources=offer.responder_resources, initiator_depth=offer.initiator_depth,
                  rnr_retry_count=offer.rnr_retry_count, srq=offer.srq, mtu=offer.mtu, ack_timeout=offer.ack_timeout,
                  retry_count=offer.retry_count, remote_timeout=self.timeout.response_timeout,
                  local_timeout=self.timeout.response_timeout, max_cm_retries=self.timeout.retries, **fields)

    def accept(self, offer: Offer, private_data: bytes, now: int, **fields: int) -> None:
        """Accept the peer's request: REQ_RCVD to REP_SENT."""
        self.mine = offer
        self.agent.answered(self)
        self._ask(State.REP_SENT, Attribute.REP, private_data, now, qpn=offer.qpn, psn=offer.psn,
                  responder_resources=offer.responder_resources, initiator_depth=offer.initiator_depth,
                  rnr_retry_count=offer.rnr_retry_count, srq=offer.srq, **fields)

    def establish(self, now: int, private_data: bytes = b"") -> None:
        """Send RTU because the QP is ready to receive: REP_RCVD to ESTABLISHED.

        An RTU has no answer. The peer requests a lost one by a repeated REP. A peer that got an MRA repeats REP only
        after the time of the MRA, so RTU is repeated meanwhile: after one interval, two more, four more ...
        """
        self.state = State.ESTABLISHED
        self._sent_message = (Attribute.RTU, private_data, {})
        self._notify_ready(now, self._interval)

    def _notify_ready(self, now: int, pause: int) -> None:
        self._repeat()
        self._pause, self.deadline = pause, None
        if now + pause < self._peer_rests_until:
            self._wait(now + pause)

    def reject(self, reason: RejectReason = RejectReason.CONSUMER_DEFINED, private_data: bytes = b"") -> None:
        """Reject the request, or cancel it before it is established."""
        about = {State.REQ_RCVD: ReferredMessage.REQ, State.REP_RCVD: ReferredMessage.REP}.get(self.state,
                                                                                               ReferredMessage.OTHER)
        self._send_message(Attribute.REJ, private_data, answered=about, reason=reason)
        self._end()

    def disconnect(self, now: int) -> None:
        """End the connection; one that is not established is rejected."""
        if self.state is State.ESTABLISHED and self.peers is not None:
            self._ask(State.DREQ_SENT, Attribute.DREQ, b"", now, remote_qpn=self.peers.qpn)
        elif self.state in (State.REQ_SENT, State.REQ_RCVD, State.REP_SENT, State.REP_RCVD):
            self.reject()

    def abandon(self, now: int) -> None:
        """Detach the owner: the connection ends without further notifications."""
        self.notify = ignore
        if self.state is State.IDLE:
            self._end()
        else:
            self.disconnect(now)

    def _end(self) -> None:
        self.state, self.deadline = State.CLOSED, None
        self.agent.forget(self)

    def _rest(self, now: int) -> None:
        """Enter TIMEWAIT: send nothing more, and wait for late packets and late requests of the peer."""
        self.state = State.TIMEWAIT
        self._wait(now + 2 * self._interval)

    # -------------------------------------------------------------------------------- received messages

    def on_message(self, message: SimpleNamespace, now: int) -> None:
        """Process a message of the peer; the agent has checked the sender and both numbers."""
        getattr(self, f"_on_{message.kind.name.lower()}")(message, now)

    def on_request_again(self, now: int) -> None:
        """Process a repeated REQ: the answer was lost, or the program has not answered yet."""
        if self.state is State.REQ_RCVD:
            self._send_message(Attribute.MRA, answered=ReferredMessage.REQ, timeout=SERVICE_TIMEOUT)
            self._expect_program(now, ack_timeout_ns(SERVICE_TIMEOUT))
        elif self.state is State.REP_SENT:
            self._repeat()

    def repeated_by(self, request: SimpleNamespace) -> bool:
        """Return true if a REQ is the one with which the peer requested this connection."""
        return self.asked and self.peers is not None and (
            self.tid, self.service_id, self.peers.qpn, self.peers.psn) == (
            request.tid, request.service_id, request.qpn, request.psn)

    def end_stale(self, now: int) -> None:
        """End an established connection of which the peer has no QP any more (IBTA 1.7, 12.9.8.3.1)."""
        if self.state is State.ESTABLISHED:
            self.disconnect(now)

    def on_requested(self, now: int) -> None:
        """Enter REQ_RCVD, until the program answers or the peer has given up."""
        self.state, self.asked = State.REQ_RCVD, True
        self._expect_program(now, 0)

    def _expect_program(self, now: int, extra: int) -> None:
        self._wait(now + extra + (self.timeout.retries + 1) * self._interval)

    def _on_rep(self, message: SimpleNamespace, now: int) -> None:
        if self.state is State.REQ_SENT and (stale := self.agent.connected(self.peer_ip, message.qpn)) is not None:
            self.remote_id = message.local_id
            self._send_message(Attribute.REJ, answered=ReferredMessage.REP, reason=RejectReason.STALE_CONN)
            self._end()
            stale.end_stale(now)
            self._notice(CmNotice.REJECTED, RejectReason.STALE_CONN)
        elif self.state is State.REQ_SENT:
            self.remote_id = message.local_id
            self.peers = Offer(message.qpn, message.psn, message.responder_resources, message.initiator_depth,
                               message.rnr_retry_count, message.srq)
            self.state = State.REP_RCVD
            self._expect_program(now, 0)
            self._notice(CmNotice.RESPONSE, 0, message.private_data)
        elif self.state is State.REP_RCVD:
            self._send_message(Attribute.MRA, answered=ReferredMessage.REP, timeout=SERVICE_TIMEOUT)
            self._expect_program(now, ack_timeout_ns(SERVICE_TIMEOUT))
            self._peer_rests_until = now + ack_timeout_ns(SERVICE_TIMEOUT)
        elif self.state is State.ESTABLISHED:
            self._repeat()

    def _on_rtu(self, message: SimpleNamespace, now: int) -> None:
        if self.state is State.REP_SENT:
            self.state, self.deadline, self._sent_message = State.ESTABLISHED, None, None
            self._notice(CmNotice.ESTABLISHED, 0, message.private_data)

    def _on_rej(self, message: SimpleNamespace, now: int) -> None:
        if self.state in (State.REQ_SENT, State.REQ_RCVD, State.REP_SENT, State.REP_RCVD):
            self._end()
            self._notice(CmNotice.REJECTED, message.reason, message.private_data)
        elif self.state is State.ESTABLISHED:
            self._rest(now)
            self._notice(CmNotice.DISCONNECTED)

    def _on_mra(self, message: SimpleNamespace, now: int) -> None:
        asked = {State.REQ_SENT: ReferredMessage.REQ, State.REP_SENT: ReferredMessage.REP}.get(self.state)
        if message.answered is asked and asked is not None and self._extensions:
            self._extensions -= 1
            self._wait(now + ack_timeout_ns(min(message.timeout, SERVICE_TIMEOUT_MAX)) + self._interval)

    def _on_dreq(self, message: SimpleNamespace, now: int) -> None:
        if self.mine is None or message.remote_qpn != self.mine.qpn:
            return
        if self.state in _LIVE or self.state is State.DREQ_SENT:
            self._send_message(Attribute.DREP)
            self._rest(now)
            self._notice(CmNotice.DISCONNECTED, 0, message.private_data)
        elif self.state is State.TIMEWAIT:
            self._send_message(Attribute.DREP)

    def _on_drep(self, message: SimpleNamespace, now: int) -> None:
        if self.state is State.DREQ_SENT:
            self._rest(now)
            self._notice(CmNotice.DISCONNECTED, 0, message.private_data)

    def _repeat(self) -> None:
        if self._sent_message is not None:
            kind, private_data, fields = self._sent_message
            self._send_message(kind, private_data, **fields)

    # ------------------------------------------------------------------------------------------- time

    def progress(self, now: int) -> None:
        """Do everything that is due."""
        if self.deadline is None or now < self.deadline:
            return
        if self.state in _WAITING and self._left:
            self._left -= 1
            self._repeat()
            self._wait(now + self._interval)
        elif self.state in (State.REQ_SENT, State.REP_SENT, State.REQ_RCVD, State.REP_RCVD):
            self.reject(RejectReason.TIMEOUT)
            self._notice(CmNotice.UNREACHABLE, -errno.ETIMEDOUT)
        elif self.state is State.ESTABLISHED:
            self._notify_ready(now, 2 * self._pause)
        elif self.state is State.DREQ_SENT:
            self._rest(now)
            self._notice(CmNotice.DISCONNECTED)
        elif self.state is State.TIMEWAIT:
            self._end()
            self._notice(CmNotice.TIMEWAIT_EXIT)
