"""Connection identifiers (rdma_cm_id) of programs: state that the `rdma_cm` device of a kernel keeps for librdmacm.

An identifier has no QP: the program creates it through libibverbs, modifies it with the attributes from here, and
passes its number.
"""

import errno
from functools import partial

from ..cm.card_agent import CardAgent
from ..cm.enums import EventType
from ..cm.identifier import EVENTS
from ..cm.qp_attributes import ACK_TIMEOUT, state_attr
from ..connection.agent import PORT_MAX, Listener
from ..connection.connection import CmNotice, Offer, State
from ..connection.messages import HEADER, Attribute, RejectReason, private_bytes
from ..ibverbs.messages import CM_PRIVATE_BYTES_MAX, Kind
from ..terms.enums import QPState
from ..terms.errors import InvalidValue, OutOfResources, PyverbsRDMAError
from ..verbs.qp_attr import RD_ATOMIC_MAX
from .ports import Ports

LOOPBACK = 127
RETRIES_MAX = 7


def _failed(error, sentence):
    return PyverbsRDMAError(sentence, error)


class ConnectionId:
    """Identifier of a connection or a listener.

    Parameters
    ----------
    client : Client
    channel : ConnectionChannel
        Channel for its events.
    user : int
        Identifier in events for the program; 0 before the program has accepted it: then no events are reported.

    Attributes
    ----------
    handle : int
    reported : int
        Events that the program took.
    src_ip, src_port, dst_ip, dst_port : int
        0 is any.
    one_family : bool
        An IPv6 address excludes IPv4 (RDMA_OPTION_ID_AFONLY).
    ipv6 : bool
        It is bound to the IPv6 address that means any.
    routed : bool
        The route to the peer is known.
    connection : Connection or None
    listener : Listener or None
    """

    port_space = "TCP"

    def __init__(self, client, channel, user):
        card = client.open().card
        self.client, self.channel, self.user, self.own_ip = client, channel, user, card.ip
        self.agent = CardAgent.of(card)
        self.ports = Ports.of(self.agent, self.port_space)
        self.agent.add_user(self, self._device_gone)
        self.psn, self.ack_timeout = card.config.random.getrandbits(24), None
        self.connection = self.listener = None
        self.src_ip = self.src_port = self.dst_ip = self.dst_port = 0
        self.bound = self.resolved = self.routed = self.reuse = self.ended = False
        self.one_family = self.ipv6 = False
        self.reported = self.handle = 0
        channel.ids[self] = None

    @property
    def listeners(self):
        """Listeners of the port space, by port."""
        return self.agent.agent.listeners

    def notify(self, kind, status=0, child=None, **fields):
        """Report an event, with fields of CM_EVENT."""
        if self.user:
            self.channel.put(self, child, there=1, user=self.user, id=child.handle if child else self.handle,
                             event=kind, status=status & 0xFFFF_FFFF, **fields)

    # ----------------------------------------------------------------------------------- addresses

    @property
    def only_ipv6(self):
        """True if no request can reach the identifier, since all requests are for IPv4 addresses."""
        return self.ipv6 and self.one_family

    def bind(self, ip, port, *, ipv6=False):
        """Bind to an address of this host, and to a port. With ``ipv6`` the address is the one that means any of IPv6.
        """
        if self.bound:
            raise InvalidValue("the identifier is bound already")
        self.ipv6 = ipv6
        self.ports.check(self, port)
        ip = self._own(ip)
        self.src_port = self.ports.bind(self, port, self.client.context.config.random)
        self.src_ip, self.bound = ip, True

    def _own(self, ip):
        """Return the address of this host for ``ip``; all loopback addresses map to the card's."""
        if ip >> 24 == LOOPBACK:
            return self.own_ip
        if ip not in (0, self.own_ip):
            raise _failed(errno.EADDRNOTAVAIL, "this host has no such address")
        return ip

    def resolve(self, src_ip, src_port, dst_ip, dst_port, timeout_ms):
        """Find the route to a peer. Event: ADDR_RESOLVED or ADDR_ERROR."""
        if self.dst_ip or self.listener or self.connection:
            raise InvalidValue("the identifier is in use")
        if self.only_ipv6:
            raise InvalidValue("the identifier is bound to IPv6 addresses only")
        if not self.bound:
            self.bind(src_ip, src_port)
        self.src_ip, self.dst_port = self.own_ip, dst_port & PORT_MAX
        self.dst_ip = self.own_ip if dst_ip >> 24 == LOOPBACK or not dst_ip else dst_ip
        self.agent.resolve(self, self.dst_ip, timeout_ms * 1_000_000, partial(self.client.guarded, self._resolved))

    def _resolved(self, found):
        self.resolved = found
        if found:
            self.notify(EventType.ADDR_RESOLVED)
        else:
            self.dst_ip = self.dst_port = 0
            self.notify(EventType.ADDR_ERROR, -errno.ETIMEDOUT)

    def resolve_route(self):
        """Select the only route. Event: ROUTE_RESOLVED, at once."""
        if not self.resolved or self.routed:
            raise InvalidValue("the peer's address is not resolved, or the route is known")
        self.routed = True
        self.notify(EventType.ROUTE_RESOLVED)

    # ---------------------------------------------------------------------------------- connections

    def listen(self, backlog):
        """Listen for requests. Event: CONNECT_REQUEST for each."""
        if self.dst_ip or self.listener or self.connection:
            raise InvalidValue("the identifier is in use")
        if not self.bound:
            self.bind(0, 0)
        if any(not other.dst_ip for other in self.ports.others(self, self.src_port)):
            raise _failed(errno.EADDRINUSE, f"port {self.src_port} is taken")
        if self.only_ipv6:      # no request comes
            self.listener = Listener(self.agent.agent, self.src_port, backlog, self._on_request)
            return
        try:
            self.listener = self._listen(backlog)
        except ValueError as problem:
            raise _failed(errno.EADDRINUSE, str(problem)) from None

    def _listen(self, backlog):
        return self.agent.agent.listen(self.src_port, backlog, self._on_request)

    def _on_request(self, connection):
        return self.client.guarded(self._requested, connection) or _unheard

    def _requested(self, connection):
        child = ConnectionId(self.client, self.channel, 0)
        child.adopt(connection, self.src_port)
        try:
            child.handle = self.client.add(Kind.CM_ID, child)
        except OutOfResources:
            return _unheard       # the quota is exhausted, and the connection was rejected
        self.notify(EventType.CONNECT_REQUEST, child=child, **_fields_of(connection, Attribute.REQ))
        return child.on_notice

    def adopt(self, connection, port):
        """Become the end of a requested connection."""
        self.connection, self.src_ip, self.src_port = connection, self.own_ip, port
        self.dst_ip, self.dst_port, self.routed = connection.peer_ip, connection.peer_port, True

    def _offer(self, param, **more):
        if not 0 < param.qp_num < 1 << 24:
            raise InvalidValue(f"{param.qp_num} is not a QP number")
        return Offer(param.qp_num, self.psn, min(param.responder_resources, RD_ATOMIC_MAX),
                     min(param.initiator_depth, RD_ATOMIC_MAX), min(param.rnr_retry_count, RETRIES_MAX),
                     int(bool(param.srq)), retry_count=min(param.retry_count, RETRIES_MAX), **more)

    def connect(self, param):
        """Request a connection. Event: CONNECT_RESPONSE, REJECTED or UNREACHABLE."""
        if not self.routed or self.connection:
            raise InvalidValue("the route is not known, or the connection was requested")
        data = private_data(param, private_bytes(Attribute.REQ) - HEADER.size_bytes)
        timeout = ACK_TIMEOUT if self.ack_timeout is None else self.ack_timeout
        offer = self._offer(param, mtu=self.client.context.query_port(1).active_mtu, ack_timeout=timeout)
        self.connection = self.agent.agent.connect(
            self.dst_ip, self.dst_port, offer, data, self.agent.now(), self.on_notice, src_port=self.src_port)

    def accept(self, param, user):
        """Accept the request. Event: ESTABLISHED, REJECTED or UNREACHABLE."""
        self._check(State.REQ_RCVD)
        data, peers = private_data(param, private_bytes(Attribute.REP)), self.connection.peers
        offer = self._offer(param, mtu=peers.mtu, ack_timeout=peers.ack_timeout).within(peers)
        self.user = user
        self.connection.accept(offer, data, self.agent.now(), ca_guid=self.agent.agent.guid)

    def establish(self):
        """Report to the peer, after CONNECT_RESPONSE, that the QP is ready."""
        self._check(State.REP_RCVD)
        self.connection.establish(self.agent.now())

    def reject(self, reason, param):
        """Reject the request or the response of the peer."""
        self._check(State.REQ_RCVD, State.REP_RCVD)
        data = private_data(param, private_bytes(Attribute.REJ))
        self.connection.reject(reason or RejectReason.CONSUMER_DEFINED, data)

    def disconnect(self):
        """End the connection. Event: DISCONNECTED, unless it was reported already."""
        if self.connection is None:
            raise InvalidValue("there is no connection")
        self.connection.disconnect(self.agent.now())

    def qp_attr(self, state):
        """Return the ``(QPAttr, mask)`` that bring a QP to INIT, RTR or RTS."""
        if state not in (QPState.INIT, QPState.RTR, QPState.RTS):
            raise InvalidValue(f"there are no attributes for state {state}")
        if not self.src_ip or state != QPState.INIT and (self.connection is None or self.connection.peers is None):
            raise InvalidValue("there is no peer yet")
        return state_attr(self, QPState(state))

    def _check(self, *states):
        if self.connection is None or self.connection.state not in states:
            state = self.connection.state.name if self.connection is not None else "not requested"
            raise InvalidValue(f"the connection is {state}")

    def on_notice(self, connection, notice):
        """Report a notification of the connection as an event."""
        self.client.guarded(self._report, connection, notice)

    def _report(self, connection, notice):
        attribute = {CmNotice.RESPONSE: Attribute.REP, CmNotice.REJECTED: Attribute.REJ}.get(notice)
        self.notify(EVENTS[notice], connection.status, **(_fields_of(connection, attribute) if attribute else {}))

    def _device_gone(self):
        self.connection = self.listener = None
        self.notify(EventType.DEVICE_REMOVAL)

    # ------------------------------------------------------------------------------------- closing

    def migrate(self, channel):
        """Report events on another channel from now on; return the number of waiting events that moved there."""
        moved = self.channel.move(self, channel) if channel is not self.channel else 0
        self.channel.ids.pop(self, None)
        self.channel, channel.ids[self] = channel, None
        return moved

    def close(self):
        """Cancel requests, end an established connection, and return the number of events that were not taken."""
        if self.ended:
            return 0
        self.ended = True
        self.channel.ids.pop(self, None)
        dropped = self.channel.drop(self)
        self.agent.forget_user(self)
        self.ports.leave(self)
        if self.listener is not None:
            self.listener.close()
        if self.connection is not None:
            self.connection.abandon(self.agent.now())
        for _, child, _ in dropped:
            if child is not None:
                child.end()
        return len(dropped)

    def end(self):
        """Close the identifier, and remove its handle."""
        self.close()
        if self.handle in self.client.objects[Kind.CM_ID]:
            self.client.remove(Kind.CM_ID, self.handle)


def _unheard(*_):
    """Ignore a notification."""


def private_data(param, most):
    """Return the private data of a request of the program.

    Raises
    ------
    InvalidValue
        If it has more than ``most`` bytes.
    """
    if param.private_data_len > most:
        raise InvalidValue(f"{param.private_data_len} bytes of private data; at most {most} fit")
    return param.private_data.to_bytes(CM_PRIVATE_BYTES_MAX, "little")[: param.private_data_len]


def _fields_of(connection, kind):
    """Return fields of CM_EVENT: the peer's QP parameters, from the view of this end, and its private data."""
    fields = {"private_data": int.from_bytes(connection.private_data, "little"),
              "private_data_len": len(connection.private_data)}
    if kind is not Attribute.REJ:
        peers = connection.peers
        fields |= {"qp_num": peers.qpn, "srq": peers.srq, "responder_resources": peers.initiator_depth,
                   "initiator_depth": peers.responder_resources, "retry_count": peers.retry_count,
                   "rnr_retry_count": peers.rnr_retry_count}
    return fields
