"""Calls of a program for connection management: a function for each opcode, as in :mod:`~weft.driver.serve.calls`."""

import collections
import errno

from ..cm.enums import RDMA_OPTION_ID, Option, PortSpace
from ..ibverbs.messages import Kind, Opcode
from ..terms.enums import EventType, QPType
from ..terms.errors import InvalidValue, NotSupported, OutOfResources, PyverbsRDMAError
from ..verbs.addr import GID
from ..verbs.device_list import guid_of
from .calls import field_of, qp_attr_fields
from .client import EventPipe
from .connection_ids import ConnectionId
from .datagram_ids import DatagramId
from .quota import ResourceKind
from .ring import Violation

TOKEN = b"\1"      # announces an event, which the program then requests
ACK_TIMEOUT_MAX = 31
REASONS = (0, 35)      # consumer defined; vendor option not supported


class ConnectionChannel(EventPipe):
    """Events that the program takes one by one. For each event the pipe has a byte, which the program reads first.

    Attributes
    ----------
    ids : dict of ConnectionId
        Identifiers that report here, as keys.
    """

    def __init__(self, client):
        super().__init__(client)
        self.client, self.ids, self._events = client, {}, collections.deque()

    def put(self, owner, child=None, **fields):
        """Queue an event of ``owner``; a program with too many events is served no longer."""
        try:
            self.client.account.take({ResourceKind.EVENTS: 1})
            self._events.append((owner, child, fields))
            self.notify(TOKEN)
        except (OutOfResources, Violation) as problem:
            self.client.violated = Violation(str(problem))

    def take(self):
        """Return the fields of the oldest event, or None."""
        if not self._events:
            return None
        owner, _, fields = self._events.popleft()
        self.client.account.release({ResourceKind.EVENTS: 1})
        owner.reported += 1
        return fields

    def drop(self, owner):
        """Remove the events of ``owner`` that were not taken, and return them: ``[(owner, child, fields)]``."""
        dropped = [event for event in self._events if event[0] is owner]
        self._events = collections.deque(event for event in self._events if event[0] is not owner)
        self.client.account.release({ResourceKind.EVENTS: len(dropped)})
        return dropped

    def move(self, owner, channel):
        """Move the events of ``owner`` to another channel, and return their number."""
        events = self.drop(owner)
        for _, child, fields in events:
            channel.put(owner, child, **fields)
        return len(events)

    def close(self):
        """Close the channel; its identifiers end with it."""
        for one in list(self.ids):
            one.end()
        super().close()


def create_channel(client, _request, _tail, _files):
    amounts = {ResourceKind.DESCRIPTORS: 1}
    client.account.check(amounts)
    channel = ConnectionChannel(client)
    return {"handle": client.add(Kind.CM_CHANNEL, channel, amounts)}, [channel.theirs.release()]


def get_event(client, request, _tail, _files):
    return client.find(Kind.CM_CHANNEL, request.handle).take() or {}, []


def create_id(client, request, _tail, _files):
    channel = client.find(Kind.CM_CHANNEL, request.channel)
    kind = _IDS.get((request.port_space, request.qp_type))
    if kind is None:
        raise NotSupported("there are the port spaces TCP, with QP type RC, and UDP, with QP type UD")
    if not request.user:
        raise InvalidValue("an identifier needs a name")
    one = kind(client, channel, request.user)
    one.handle = client.add(Kind.CM_ID, one)
    return {"handle": one.handle}, []


_IDS = {(PortSpace.TCP, QPType.RC): ConnectionId, (PortSpace.UDP, QPType.UD): DatagramId}


def _find(client, request):
    return client.find(Kind.CM_ID, request.handle)


def destroy_id(client, request, _tail, _files):
    one = _find(client, request)
    dropped = one.close()
    one.end()
    return {"reported": one.reported, "dropped": dropped}, []


def migrate_id(client, request, _tail, _files):
    one = _find(client, request)
    moved = one.migrate(client.find(Kind.CM_CHANNEL, request.channel))
    return {"reported": one.reported, "moved": moved}, []


def set_option(client, request, _tail, _files):
    one = _find(client, request)
    if request.level != RDMA_OPTION_ID or request.name not in list(Option):
        raise PyverbsRDMAError(f"there is no option {request.name} of level {request.level}", errno.ENOSYS)
    if request.name == Option.REUSEADDR:
        one.reuse = bool(request.value)
    elif request.name == Option.AFONLY:
        if one.listener or one.dst_ip:
            raise InvalidValue("the identifier is in use")
        one.one_family = bool(request.value)
    elif request.name == Option.ACK_TIMEOUT:
        if request.value > ACK_TIMEOUT_MAX:
            raise InvalidValue(f"ack_timeout is {request.value}; it is {ACK_TIMEOUT_MAX} at most")
        one.ack_timeout = request.value
    return {}, []


def bind_addr(client, request, _tail, _files):
    _find(client, request).bind(request.ip, request.port, ipv6=bool(request.ipv6))
    return {}, []


def resolve_addr(client, request, _tail, _files):
    _find(client, request).resolve(request.src_ip, request.src_port, request.dst_ip, request.dst_port,
                                   request.timeout_ms)
    return {}, []


def resolve_route(client, request, _tail, _files):
    _find(client, request).resolve_route()
    return {}, []


def query_route(client, request, _tail, _files):
    one = _find(client, request)
    route = {name: getattr(one, name) for name in ("src_ip", "src_port", "dst_ip", "dst_port")}
    if one.src_ip:
        route |= {"node_guid": guid_of(client.open().card.mac), "sgid": field_of(GID.of_ipv4(one.src_ip)),
                  "mtu": int(client.context.query_port(1).active_mtu)}
    if one.dst_ip:
        route |= {"dgid": field_of(GID.of_ipv4(one.dst_ip)), "paths": int(one.routed)}
    return route, []


def listen(client, request, _tail, _files):
    _find(client, request).listen(request.backlog)
    return {}, []


def connect(client, request, _tail, _files):
    _find(client, request).connect(request)
    return {}, []


def accept(client, request, _tail, _files):
    one = _find(client, request)
    if request.valid:
        one.accept(request, request.user)
    else:
        one.establish()
    return {}, []


def reject(client, request, _tail, _files):
    if request.reason not in REASONS:
        raise InvalidValue(f"{request.reason} is not a reason that a program has")
    _find(client, request).reject(request.reason, request)
    return {}, []


def disconnect(client, request, _tail, _files):
    _find(client, request).disconnect()
    return {}, []


def notify(client, request, _tail, _files):
    _find(client, request)
    if request.event != EventType.COMM_EST:
        raise InvalidValue(f"event {request.event} cannot be requested")
    return {}, []


def init_qp_attr(client, request, _tail, _files):
    attr, mask = _find(client, request).qp_attr(request.qp_state)
    return qp_attr_fields(attr) | {"mask": int(mask)}, []


def join_multicast(client, request, _tail, _files):
    one = _find(client, request)
    if not isinstance(one, DatagramId):
        raise InvalidValue("an identifier of the port space UDP is needed")
    return {"handle": one.join(request.ip, request.user).handle}, []


def leave_multicast(client, request, _tail, _files):
    membership = client.find(Kind.MULTICAST, request.handle)
    dropped = membership.close()
    client.remove(Kind.MULTICAST, request.handle)
    return {"reported": membership.reported, "dropped": dropped}, []


CALLS = {
    Opcode.CREATE_CM_CHANNEL: create_channel, Opcode.GET_CM_EVENT: get_event, Opcode.CREATE_ID: create_id,
    Opcode.DESTROY_ID: destroy_id, Opcode.MIGRATE_ID: migrate_id, Opcode.SET_OPTION: set_option,
    Opcode.BIND_ADDR: bind_addr, Opcode.RESOLVE_ADDR: resolve_addr, Opcode.RESOLVE_ROUTE: resolve_route,
    Opcode.QUERY_ROUTE: query_route, Opcode.LISTEN: listen, Opcode.CONNECT: connect, Opcode.ACCEPT: accept,
    Opcode.REJECT: reject, Opcode.DISCONNECT: disconnect, Opcode.NOTIFY: notify, Opcode.INIT_QP_ATTR: init_qp_attr,
    Opcode.JOIN_MULTICAST: join_multicast, Opcode.LEAVE_MULTICAST: leave_multicast,
}
