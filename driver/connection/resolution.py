"""Resolution of a service to a UD queue pair: SIDR_REQ and SIDR_REP (IBTA 1.7, chapter 12.11), sans I/O.

The first message requests the QPN and the Q_Key of a service, the second one is the answer; there is no connection. The
state that unknown peers can cause is bounded: by the backlog of a listener, and by :data:`ANSWERS_KEPT` answers, which
are kept for repeated requests.
"""

import enum
import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ..protocol.timer import ack_timeout_ns
from .messages import PORT_SPACE_UDP, Attribute, build, header, parse_header, service_id

if TYPE_CHECKING:
    from .agent import Agent, Listener

ANSWERS_KEPT = 4096
PKEY = 0xFFFF


class SidrStatus(enum.IntEnum):
    """Status of an answer (IBTA table 120)."""

    VALID = 0
    UNSUPPORTED = 1
    REJECTED = 2
    NO_QP = 3
    REDIRECTED = 4
    UNSUPPORTED_VERSION = 5


class ResolutionState(enum.Enum):
    """State of a resolution: of the requester SENT, of the responder the next two."""

    SENT = enum.auto()
    RECEIVED = enum.auto()     # waits for the program to answer
    ANSWERED = enum.auto()     # a repeated request gets the same answer
    CLOSED = enum.auto()


class Resolution:
    """One end of an exchange.

    Attributes
    ----------
    status : int
        Of the answer: a :class:`SidrStatus`, or −ETIMEDOUT.
    qpn, qkey : int
        Of the service, after a valid answer.
    private_data : bytes
        Of the last message of the peer.
    peer_ip, peer_port, service_id : int
    notify : callable(Resolution)
        Called when the exchange ends without a call of the owner.
    deadline : int or None
        Time of the next call of :meth:`progress`.
    """

    def __init__(self, owner: "Resolutions", state: ResolutionState, peer_ip: int, request_id: int, tid: int,
                 notify: Callable[["Resolution"], object]) -> None:
        self.owner, self.state, self.peer_ip, self.request_id, self.tid = owner, state, peer_ip, request_id, tid
        self.notify, self.timeout = notify, owner.agent.timeout
        self.status = self.qpn = self.qkey = self.peer_port = self.service_id = 0
        self.peer_mac: int | None = None
        self.private_data, self._message = b"", b""
        self._left = self.timeout.retries
        self.deadline: int | None = None

    @property
    def _interval(self) -> int:
        return ack_timeout_ns(self.timeout.response_timeout)

    @property
    def _whole(self) -> int:
        """Time after which the peer repeats its request no more."""
        return (self.timeout.retries + 1) * self._interval

    def _send(self, message: bytes = b"") -> None:
        self._message = message or self._message
        self.owner.agent.send_to(self.peer_ip, self.peer_mac, self._message)

    def _wait(self, deadline: int) -> None:
        self.deadline = deadline
        self.owner.agent.wake(self)

    def request(self, private_data: bytes, now: int) -> None:
        """Send the request, and repeat it until there is an answer."""
        self._send(build(Attribute.SIDR_REQ, self.tid, private_data, request_id=self.request_id, pkey=PKEY,
                         service_id=self.service_id))
        self._wait(now + self._interval)

    def expect_program(self, now: int) -> None:
        """Wait for :meth:`answer`, until the peer has given up."""
        self._wait(now + self._whole)

    def answer(self, now: int, status: SidrStatus, private_data: bytes = b"", *, qpn: int = 0, qkey: int = 0) -> None:
        """Answer the request of the peer."""
        self.state = ResolutionState.ANSWERED
        self.owner.answered(self)
        self._send(build(Attribute.SIDR_REP, self.tid, private_data, request_id=self.request_id, status=status, qpn=qpn,
                         service_id=self.service_id, qkey=qkey))
        self._wait(now + self._whole)

    def reject(self, _reason: int = 0) -> None:
        """Answer a request that no program gets."""
        self.answer(self.owner.now, SidrStatus.REJECTED)

    def abandon(self, now: int) -> None:
        """Detach the owner."""
        self.notify = _ignore
        if self.state is ResolutionState.RECEIVED:
            self.answer(now, SidrStatus.REJECTED)
        elif self.state is ResolutionState.SENT:
            self.end()

    def end(self) -> None:
        """Remove the exchange from all tables."""
        self.state, self.deadline = ResolutionState.CLOSED, None
        self.owner.forget(self)

    def on_repeated(self) -> None:
        """Process a repeated request."""
        if self.state is ResolutionState.ANSWERED:
            self._send()

    def on_answer(self, message: SimpleNamespace) -> None:
        """Process the answer of the peer."""
        self.status, self.qpn, self.qkey = message.status, message.qpn, message.qkey
        self.private_data = message.private_data
        self.end()
        self.notify(self)

    def progress(self, now: int) -> None:
        """Do everything that is due."""
        if self.deadline is None or now < self.deadline:
            return
        if self.state is ResolutionState.SENT and self._left:
            self._left -= 1
            self._send()
            self._wait(now + self._interval)
            return
        waited = self.state in (ResolutionState.SENT, ResolutionState.RECEIVED)
        self.status = -errno.ETIMEDOUT
        self.end()
        if waited:
            self.notify(self)


def _ignore(resolution: Resolution) -> None:
    """Ignore a notification."""


class Resolutions:
    """Resolutions of a host, beside the connections of an Agent.

    Parameters
    ----------
    agent : Agent
        Used are ``ip, timeout, counts, send_to()`` and ``wake()``.
    draw : callable(bits)
        Source of unpredictable numbers.

    Attributes
    ----------
    listeners : dict of int to Listener
        By port. Requests are handed over as :class:`Resolution`.
    now : int
        Time of the last message.
    """

    def __init__(self, agent: "Agent", draw: Callable[[int], int]) -> None:
        self.agent, self._draw, self.now = agent, draw, 0
        self.listeners: dict[int, Listener] = {}
        self._sent: dict[int, Resolution] = {}
        self._received: dict[tuple[int, int], Resolution] = {}

    def __len__(self) -> int:
        return len(self._sent) + len(self._received)

    def resolve(self, peer_ip: int, port: int, private_data: bytes, now: int, notify: Callable[[Resolution], object], *,
                src_port: int = 0) -> Resolution:
        """Request the queue pair of a port; ``notify(resolution)`` is called with the answer, or after the time-out."""
        request_id = next(n for n in iter(lambda: self._draw(32), None) if n and n not in self._sent)
        one = Resolution(self, ResolutionState.SENT, peer_ip, request_id, self._draw(64), notify)
        self._sent[request_id] = one
        one.service_id, self.now = service_id(port, PORT_SPACE_UDP), now
        one.request(header(self.agent.ip, src_port, peer_ip) + private_data, now)
        return one

    def on_message(self, message: SimpleNamespace, src_ip: int, src_mac: int, now: int) -> None:
        """Process a message."""
        self.now = now
        if message.kind is Attribute.SIDR_REQ:
            self._on_request(message, src_ip, src_mac, now)
            return
        one = self._sent.get(message.request_id)
        if one is None or one.peer_ip != src_ip or one.service_id != message.service_id:
            self.agent.counts["stray_SIDR_REP"] += 1
        else:
            one.on_answer(message)

    def _on_request(self, message: SimpleNamespace, src_ip: int, src_mac: int, now: int) -> None:
        known = self._received.get((src_ip, message.request_id))
        if known is not None:
            known.on_repeated()
            return
        about = parse_header(message.private_data)
        port = message.service_id & 0xFFFF
        listener = self.listeners.get(port)
        if (listener is None or message.service_id != service_id(port, PORT_SPACE_UDP) or about is None
                or about.src_ip != src_ip or about.dst_ip != self.agent.ip):
            self.agent.counts["refused_SIDR_REQ"] += 1
            self.agent.send_to(src_ip, src_mac, build(
                Attribute.SIDR_REP, message.tid, request_id=message.request_id, status=SidrStatus.UNSUPPORTED,
                service_id=message.service_id))
            return
        if listener.full or len(self._received) >= ANSWERS_KEPT:      # no answer: the peer repeats the request
            self.agent.counts["backlog_full"] += 1
            return
        one = self._received[src_ip, message.request_id] = Resolution(
            self, ResolutionState.RECEIVED, src_ip, message.request_id, message.tid, _ignore)
        one.peer_mac, one.peer_port, one.service_id = src_mac, about.src_port, message.service_id
        one.private_data = about.private_data
        one.expect_program(now)
        listener.add(one)

    def answered(self, one: Resolution) -> None:
        """Remove a request from its listener's backlog."""
        for listener in self.listeners.values():
            listener.answered(one)

    def forget(self, one: Resolution) -> None:
        """Remove an exchange that ended."""
        self.answered(one)
        if self._sent.get(one.request_id) is one:
            del self._sent[one.request_id]
        elif self._received.get((one.peer_ip, one.request_id)) is one:
            del self._received[one.peer_ip, one.request_id]

    def forget_all(self) -> None:
        """Drop everything without messages or notifications."""
        self.listeners.clear()
        self._sent.clear()
        self._received.clear()
