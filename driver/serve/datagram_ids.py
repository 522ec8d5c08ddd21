"""Identifiers of the port space UDP: resolution of a service to a UD queue pair, and multicast groups."""

from ..cm.enums import UDP_QKEY, EventType
from ..connection.messages import HEADER, Attribute, private_bytes
from ..connection.resolution import ResolutionState, SidrStatus
from ..datagram.packet import MULTICAST_QPN, is_group
from ..ibverbs.messages import Kind
from ..terms.enums import QPState, QPType
from ..terms.errors import InvalidValue, OutOfResources
from ..verbs.qp import QPAttr
from ..verbs.qp_states import necessary
from .connection_ids import ConnectionId, private_data


class Membership:
    """Multicast group that an identifier joined; ``reported`` and ``user`` as of identifiers."""

    def __init__(self, owner, user, ip):
        self.owner, self.user, self.ip, self.reported, self.handle = owner, user, ip, 0, 0

    def close(self):
        """Leave the group, and return the number of events that were not taken."""
        self.owner.memberships.pop(self, None)
        return len(self.owner.channel.drop(self))


class DatagramId(ConnectionId):
    """Identifier of a UD queue pair, a service, or a request for one.

    ``connection`` is a :class:`~weft.driver.connection.resolution.Resolution`.

    Attributes
    ----------
    qkey : int
    memberships : dict of Membership
        As keys.
    """

    port_space = "UDP"

    def __init__(self, client, channel, user):
        super().__init__(client, channel, user)
        self.qkey, self.memberships = UDP_QKEY, {}

    @property
    def listeners(self):
        return self.agent.agent.resolutions.listeners

    def _listen(self, backlog):
        return self.agent.agent.listen(self.src_port, backlog, self._on_request, datagrams=True)

    def _requested(self, resolution):
        child = DatagramId(self.client, self.channel, 0)
        child.adopt(resolution, self.src_port)
        try:
            child.handle = self.client.add(Kind.CM_ID, child)
        except OutOfResources:
            return _unheard      # the quota is exhausted, and the request was rejected
        self.notify(EventType.CONNECT_REQUEST, child=child, ud=1, **_private(resolution.private_data))
        return _unheard

    def connect(self, param):
        """Ask for the queue pair of the service. Event: ESTABLISHED or UNREACHABLE."""
        if not self.routed or self.connection:
            raise InvalidValue("the route is not known, or the service was requested")
        data = private_data(param, private_bytes(Attribute.SIDR_REQ) - HEADER.size_bytes)
        self.connection = self.agent.agent.resolutions.resolve(
            self.dst_ip, self.dst_port, data, self.agent.now(), self._on_answer, src_port=self.src_port)

    def _on_answer(self, resolution):
        self.client.guarded(self._answered, resolution)

    def _answered(self, resolution):
        if resolution.status == SidrStatus.VALID:
            self.qkey = resolution.qkey
            self.notify(EventType.ESTABLISHED, ud=1, qp_num=resolution.qpn, qkey=resolution.qkey, peer_ip=self.dst_ip,
                        **_private(resolution.private_data))
        else:
            self.notify(EventType.UNREACHABLE, resolution.status, ud=1, **_private(resolution.private_data))

    def accept(self, param, user):
        """Answer the request with a queue pair. There is no event."""
        self._check(ResolutionState.RECEIVED)
        if not 0 < param.qp_num < MULTICAST_QPN:
            raise InvalidValue(f"{param.qp_num} is not a QP number")
        data = private_data(param, private_bytes(Attribute.SIDR_REP))
        self.qkey, self.user = param.qkey or self.qkey, user
        self.connection.answer(self.agent.now(), SidrStatus.VALID, data, qpn=param.qp_num, qkey=self.qkey)

    def establish(self):
        raise InvalidValue("a datagram service has no connection to establish")

    def reject(self, reason, param):
        """Reject the request."""
        self._check(ResolutionState.RECEIVED)
        data = private_data(param, private_bytes(Attribute.SIDR_REP))
        self.connection.answer(self.agent.now(), SidrStatus.REJECTED, data)

    def disconnect(self):
        """Do nothing, as a kernel does: there is no connection to end."""
        if self.connection is None:
            raise InvalidValue("there is no connection")

    def qp_attr(self, state):
        """Return the ``(QPAttr, mask)`` that bring a UD QP to INIT; the others need nothing from here."""
        if state != QPState.INIT or not self.src_ip:
            raise InvalidValue(f"there are no attributes for state {state} of a UD QP, or no device yet")
        return QPAttr(qkey=self.qkey), necessary(QPState.RESET, QPState.INIT, QPType.UD)

    def migrate(self, channel):
        """Report events on another channel as :meth:`ConnectionId.migrate` does, those of the memberships, too."""
        moved = 0
        if channel is not self.channel:
            moved = sum(self.channel.move(membership, channel) for membership in self.memberships)
        return moved + super().migrate(channel)

    # -------------------------------------------------------------------------------------- multicast

    def join(self, ip, user):
        """Join a multicast group, and return the :class:`Membership`. Event: MULTICAST_JOIN, at once."""
        if not self.src_ip:
            raise InvalidValue("the identifier has no device: bind it, or resolve an address")
        if not is_group(ip):
            raise InvalidValue("the address is not that of an IPv4 multicast group (224.0.0.0 to 239.255.255.255)")
        membership = Membership(self, user, ip)
        membership.handle = self.client.add(Kind.MULTICAST, membership)
        self.memberships[membership] = None
        self.channel.put(membership, None, there=1, user=user, id=membership.handle, event=EventType.MULTICAST_JOIN,
                         ud=1, qp_num=MULTICAST_QPN, qkey=self.qkey, peer_ip=ip)
        return membership

    def close(self):
        """Leave all groups, and close the identifier; return the number of events that were not taken."""
        dropped = 0
        for membership in list(self.memberships):
            dropped += membership.close()
            if membership.handle in self.client.objects[Kind.MULTICAST]:
                self.client.remove(Kind.MULTICAST, membership.handle)
        return dropped + super().close()


def _unheard(*_):
    """Ignore a notification."""


def _private(data):
    return {"private_data": int.from_bytes(data, "little"), "private_data_len": len(data)}
