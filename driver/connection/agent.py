"""Connections of a host: dispatch of messages to them, and answers to messages of no connection.

The state that unknown peers can cause is bounded: a listener has at most ``backlog`` requests without an answer of the
program, or :data:`REQUESTS_KEPT` if that is more, and each of them expires when its sender must have given up. A
message of no connection is answered at once and leaves no state.
"""

import collections
import heapq
import itertools
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from weft.hdl.contract import wire

from .connection import CmNotice, Connection, Offer, ResponseTimeout, State, ignore
from .messages import (
    LAYOUTS,
    Attribute,
    ReferredMessage,
    RejectReason,
    build,
    gid_of,
    header,
    parse,
    parse_header,
    service_id,
)
from .resolution import Resolution, Resolutions

BACKLOG_MAX = 1024
REQUESTS_KEPT = 128          # by a listener: those beyond the backlog wait for the program
RESPONSE_TIMEOUT_MAX = 20    # limit of the peer's response time-out, whatever it requests: 4.3 s
RATE_100_GBPS = 18      # packet rate, as in path records
PORT_MAX = (1 << 16) - 1


Notify = Callable[[Connection, CmNotice], object]
SIDR = frozenset({Attribute.SIDR_REQ, Attribute.SIDR_REP})


class Listener:
    """Listener for the requests of one service.

    Attributes
    ----------
    pending : dict of Connection
        Requests that the program has and neither accepted nor rejected, as keys.
    waiting : dict of Connection
        Later requests, as keys: the program gets one for each that it answers.
    """

    def __init__(self, agent: "Agent | Resolutions", port: int, backlog: int,
                 on_request: Callable[[Any], Any]) -> None:
        self.agent, self.port, self.on_request = agent, port, on_request
        self.backlog = min(backlog, BACKLOG_MAX) if backlog > 0 else BACKLOG_MAX
        self.pending: dict[Any, None] = {}
        self.waiting: dict[Any, None] = {}
        self._handing = False

    @property
    def full(self) -> bool:
        """True if no further request can be kept."""
        return len(self.pending) + len(self.waiting) >= max(self.backlog, REQUESTS_KEPT)

    def add(self, connection: Connection | Resolution) -> None:
        """Add a request, and hand it to the program if the backlog permits."""
        self.waiting[connection] = None
        self._hand_over()

    def answered(self, connection: Connection | Resolution) -> None:
        """Remove a request that was answered or expired."""
        self.waiting.pop(connection, None)
        if self.pending.pop(connection, self) is not self:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._handing:      # the program answers a request while it gets it
            return
        self._handing = True
        try:
            while self.waiting and len(self.pending) < self.backlog:
                connection = next(iter(self.waiting))
                del self.waiting[connection]
                self.pending[connection] = None
                connection.notify = self.on_request(connection)
        finally:
            self._handing = False

    def close(self) -> None:
        """Stop listening, and reject the requests that the program did not get."""
        if self.agent.listeners.get(self.port) is self:
            del self.agent.listeners[self.port]
        waiting, self.waiting = self.waiting, {}
        for connection in waiting:
            connection.reject(RejectReason.INVALID_SERVICE_ID)


class Agent:
    """Connection management of a host.

    Parameters
    ----------
    ip, guid : int
    random : random.Random
        Source of unpredictable numbers.
    send : callable(ip, mac, datagram)
        ``mac`` is the source address of the peer's last message, or None.
    timeout : ResponseTimeout

    Attributes
    ----------
    listeners : dict of Listener
        By port.
    connections : dict of Connection
        By their local numbers.
    counts : Counter
        Messages that were dropped or rejected, by reason.
    resolutions : Resolutions
        Resolutions of services to UD queue pairs.
    """

    def __init__(self, *, ip: int, guid: int, random: Random, send: Callable[[int, int | None, bytes], object],
                 timeout: ResponseTimeout | None = None) -> None:
        self.ip, self.guid, self._random, self._send = ip, guid, random, send
        self.timeout = timeout or ResponseTimeout()
        self.listeners: dict[int, Listener] = {}
        self.connections: dict[int, Connection] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        self.resolutions = Resolutions(self, random.getrandbits)
        self._by_peer: dict[tuple[int, int], Connection] = {}    # by IP and number of the connection at the peer
        self._by_qp: dict[tuple[int, int], Connection] = {}      # by IP and QPN of the peer
        self._due: list[tuple[int, int, Connection | Resolution]] = []
        self._number = itertools.count()

    # --------------------------------------------------------------------------------- the program's side

    def listen(self, port: int, backlog: int, on_request: Callable[[Any], Any], *, datagrams: bool = False) -> Listener:
        """Listen on a port, or on any free port if ``port`` is 0, and return the :class:`Listener`.

        Each request calls ``on_request(connection)``, which returns the callable for further :class:`CmNotice` of the
        connection. With ``datagrams`` the port is of UD queue pairs, and a request is a
        :class:`~weft.driver.connection.resolution.Resolution`.

        Raises
        ------
        ValueError
            If the port has a listener.
        """
        owner = self.resolutions if datagrams else self
        if not port:
            port = next(p for p in iter(lambda: self._random.randrange(1 << 15, PORT_MAX), None)
                        if p not in owner.listeners)
        if port in owner.listeners:
            raise ValueError(f"another listener has port {port}")
        owner.listeners[port] = listener = Listener(owner, port, backlog, on_request)
        return listener

    def connect(self, peer_ip: int, port: int, offer: Offer, private_data: bytes, now: int, notify: Notify, *,
                src_port: int = 0) -> Connection:
        """Request a connection to a port; ``notify(connection, CmNotice)`` is called with each outcome."""
        connection = self._new(peer_ip, self._random.getrandbits(64), self.timeout, notify)
        connection.service_id = service_id(port)
        connection.request(
            offer, header(self.ip, src_port, peer_ip) + private_data, now, service_id=connection.service_id,
            ca_guid=self.guid, local_gid=gid_of(self.ip), remote_gid=gid_of(peer_ip), pkey=0xFFFF,
            packet_rate=RATE_100_GBPS, hop_limit=64)
        return connection

    def _new(self, peer_ip: int, tid: int, timeout: ResponseTimeout, notify: Notify) -> Connection:
        local_id = next(n for n in iter(lambda: self._random.getrandbits(32), None) if n and n not in self.connections)
        connection = self.connections[local_id] = Connection(self, peer_ip, local_id, tid, timeout, notify)
        return connection

    # ------------------------------------------------------------------------------ the connections' side

    def send(self, connection: Connection, kind: Attribute, private_data: bytes = b"", **fields: int) -> None:
        """Send a message of a connection."""
        if "remote_id" in LAYOUTS[kind].by_name:
            fields["remote_id"] = connection.remote_id
        data = build(kind, connection.tid, private_data, local_id=connection.local_id, **fields)
        self._send(connection.peer_ip, connection.peer_mac, data)

    def send_to(self, ip: int, mac: int | None, message: bytes) -> None:
        """Send a message that belongs to no connection."""
        self._send(ip, mac, message)

    def wake(self, connection: Connection | Resolution) -> None:
        """Schedule a connection or a resolution by its new deadline."""
        assert connection.deadline is not None
        heapq.heappush(self._due, (connection.deadline, next(self._number), connection))
        if len(self._due) > 4 * (len(self.connections) + len(self.resolutions)) + 64:
            self._due = [entry for entry in self._due if entry[2].deadline == entry[0]]
            heapq.heapify(self._due)
        if isinstance(connection, Connection) and connection.remote_id and connection.peers is not None:
            self._by_peer[connection.peer_ip, connection.remote_id] = connection
            self._by_qp[connection.peer_ip, connection.peers.qpn] = connection

    def answered(self, connection: Connection) -> None:
        """Remove a request from its listener's backlog: the program accepted or rejected it, or it expired."""
        for listener in self.listeners.values():
            listener.answered(connection)

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection from all tables."""
        self.answered(connection)
        self.connections.pop(connection.local_id, None)
        qpn = connection.peers.qpn if connection.peers is not None else 0
        for table, name in ((self._by_peer, connection.remote_id), (self._by_qp, qpn)):
            if table.get((connection.peer_ip, name)) is connection:
                del table[connection.peer_ip, name]

    # ---------------------------------------------------------------------------------- received messages

    def on_datagram(self, data: bytes, src_ip: int, src_mac: int, now: int) -> None:
        """Process a management datagram for this host."""
        message = parse(data)
        if message is None:
            self.counts["unknown"] += 1
        elif message.kind is Attribute.REQ:
            self._on_req(message, src_ip, src_mac, now)
        elif message.kind in SIDR:
            self.resolutions.on_message(message, src_ip, src_mac, now)
        else:
            connection = self._find(message, src_ip)
            if connection is None:
                self._answer_unknown_peer(message, src_ip, src_mac)
            else:
                connection.peer_mac = src_mac
                connection.on_message(message, now)

    def _find(self, message: SimpleNamespace, src_ip: int) -> Connection | None:
        """Return the connection of a message, or None if there is none or its peer is not the sender."""
        connection = self.connections.get(message.remote_id)
        if connection is None and message.kind is Attribute.REJ and not message.remote_id:
            connection = self._by_peer.get((src_ip, message.local_id))     # the peer never received the local number
        if connection is None or connection.peer_ip != src_ip:
            return None
        unknown = connection.state is State.REQ_SENT
        return connection if unknown or message.local_id == connection.remote_id else None

    def _answer_unknown_peer(self, message: SimpleNamespace, src_ip: int, src_mac: int) -> None:
        """Answer a message of a connection that does not exist, or that is another peer's."""
        self.counts[f"stray_{message.kind.name}"] += 1
        ids = {"local_id": message.remote_id, "remote_id": message.local_id}
        if message.kind is Attribute.DREQ and message.remote_id not in self.connections:
            self._send(src_ip, src_mac, build(Attribute.DREP, message.tid, **ids))
        elif message.kind is Attribute.REP:
            self._refuse(message.tid, ids, ReferredMessage.REP, RejectReason.INVALID_COMM_ID, src_ip, src_mac)

    def _refuse(self, tid: int, ids: dict[str, int], answered: ReferredMessage, reason: RejectReason, src_ip: int,
                src_mac: int) -> None:
        self.counts[f"refused_{reason.name}"] += 1
        self._send(src_ip, src_mac, build(Attribute.REJ, tid, b"", answered=answered, reason=reason, **ids))

    def _on_req(self, message: SimpleNamespace, src_ip: int, src_mac: int, now: int) -> None:
        known = self._by_peer.get((src_ip, message.local_id))
        if known is not None and known.repeated_by(message):
            known.on_request_again(now)
            return
        header, listener = parse_header(message.private_data), self.listeners.get(message.service_id & PORT_MAX)
        reason = self._objection(message, header, listener, src_ip)
        stale = self._stale(known, src_ip, message.qpn) if reason is None else None
        if stale is not None:
            reason = RejectReason.STALE_CONN
        if reason is not None:
            self._refuse(message.tid, {"remote_id": message.local_id}, ReferredMessage.REQ, reason, src_ip, src_mac)
            if stale is not None:
                stale.end_stale(now)
            return
        assert listener is not None and header is not None
        if len(listener.pending) >= listener.backlog:
            self.counts["backlog_full"] += 1
        if not listener.full:      # else there is no answer: the peer will repeat the request
            self._take(listener, message, header, src_ip, src_mac, now)

    def _stale(self, known: Connection | None, src_ip: int, qpn: int) -> Connection | None:
        """Return the connection that a request contradicts, or None.

        That is ``known``, whose peer has given its number to a new request, or the one that its QP has already.
        """
        if known is not None and known.state is not State.TIMEWAIT:
            return known
        return self.connected(src_ip, qpn)

    def connected(self, peer_ip: int, qpn: int) -> Connection | None:
        """Return the connection of a QP of a peer, or None."""
        other = self._by_qp.get((peer_ip, qpn))
        return other if other is not None and other.state not in (State.TIMEWAIT, State.REQ_RCVD) else None

    def _objection(self, message: SimpleNamespace, header: SimpleNamespace | None, listener: Listener | None,
                   src_ip: int) -> RejectReason | None:
        """Return the reason to reject a request without the program, or None."""
        if listener is None or message.service_id != service_id(listener.port):
            return RejectReason.INVALID_SERVICE_ID
        if message.transport or message.extended_transport:
            return RejectReason.INVALID_TRANSPORT_TYPE
        if header is None or message.rdc_exists or not message.local_id:
            return RejectReason.UNSUPPORTED
        if header.src_ip != src_ip or header.dst_ip != self.ip or message.local_gid != gid_of(src_ip):
            return RejectReason.INVALID_GID
        if message.mtu not in wire.PMTUS:
            return RejectReason.INVALID_MTU
        return None

    def _take(self, listener: Listener, message: SimpleNamespace, header: SimpleNamespace, src_ip: int, src_mac: int,
              now: int) -> None:
        timeout = min(max(1, message.local_timeout, message.remote_timeout), RESPONSE_TIMEOUT_MAX)
        connection = self._new(src_ip, message.tid, ResponseTimeout(timeout, message.max_cm_retries), ignore)
        connection.remote_id, connection.peer_mac, connection.peer_port = message.local_id, src_mac, header.src_port
        connection.service_id, connection.private_data = message.service_id, header.private_data
        connection.peers = Offer(message.qpn, message.psn, message.responder_resources, message.initiator_depth,
                                 message.rnr_retry_count, message.srq, message.mtu, message.ack_timeout,
                                 message.retry_count)
        connection.on_requested(now)
        listener.add(connection)

    # --------------------------------------------------------------------------------------------- time

    @property
    def deadline(self) -> int | None:
        """Time of the next call of :meth:`progress`, or None."""
        while self._due and self._due[0][2].deadline != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def progress(self, now: int) -> None:
        """Do everything that is due."""
        while (due := self.deadline) is not None and due <= now:
            heapq.heappop(self._due)[2].progress(now)

    def forget_all(self) -> None:
        """Drop all listeners and connections without messages or notifications; the host lost all packets in flight."""
        self.listeners.clear()
        self.resolutions.forget_all()
        self.connections.clear()
        self._by_peer.clear()
        self._by_qp.clear()
        self._due.clear()
