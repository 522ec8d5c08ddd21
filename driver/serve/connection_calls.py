"""What a program can ask for of connections: a function for each opcode, as in :mod:`~weft.driver.serve.calls`."""

import errno

from ..cm.enums import RDMA_OPTION_ID, Option, PortSpace
from ..ibverbs.messages import Kind, Opcode
from ..terms.enums import EventType, QPType
from ..terms.errors import InvalidValue, NotSupported, PyverbsRDMAError
from ..verbs.addr import GID
from ..verbs.device_list import guid_of
from .calls import call, field_of, qp_attr_fields
from .connection_channel import ConnectionChannel
from .connection_ids import ConnectionId

ACK_TIMEOUT_MAX = 31
REASONS = (0, 35)      # consumer defined; vendor option not supported


@call(Opcode.CREATE_CM_CHANNEL)
def create_channel(client, _request, _tail, _files):
    channel = ConnectionChannel(client)
    return {"handle": client.add(Kind.CM_CHANNEL, channel)}, [channel.theirs.give()]


@call(Opcode.GET_CM_EVENT)
def get_event(client, request, _tail, _files):
    return client.find(Kind.CM_CHANNEL, request.handle).take() or {}, []


@call(Opcode.CREATE_ID)
def create_id(client, request, _tail, _files):
    channel = client.find(Kind.CM_CHANNEL, request.channel)
    if request.port_space != PortSpace.TCP or request.qp_type != QPType.RC:
        raise NotSupported("there are reliable connections only: port space TCP, QP type RC")
    if not request.user:
        raise InvalidValue("an identifier needs a name")
    one = ConnectionId(client, channel, request.user)
    one.handle = client.add(Kind.CM_ID, one)
    return {"handle": one.handle}, []


def _find(client, request):
    return client.find(Kind.CM_ID, request.handle)


@call(Opcode.DESTROY_ID)
def destroy_id(client, request, _tail, _files):
    one = _find(client, request)
    dropped = one.close()
    one.end()
    return {"reported": one.reported, "dropped": dropped}, []


@call(Opcode.MIGRATE_ID)
def migrate_id(client, request, _tail, _files):
    one = _find(client, request)
    moved = one.migrate(client.find(Kind.CM_CHANNEL, request.channel))
    return {"reported": one.reported, "moved": moved}, []


@call(Opcode.SET_OPTION)
def set_option(client, request, _tail, _files):
    one = _find(client, request)
    if request.level != RDMA_OPTION_ID or request.name not in list(Option):
        raise PyverbsRDMAError(f"there is no option {request.name} of level {request.level}", errno.ENOSYS)
    if request.name == Option.REUSEADDR:
        one.reuse = bool(request.value)
    elif request.name == Option.ACK_TIMEOUT:
        if request.value > ACK_TIMEOUT_MAX:
            raise InvalidValue(f"ack_timeout is {request.value}; it is {ACK_TIMEOUT_MAX} at most")
        one.ack_timeout = request.value
    return {}, []


@call(Opcode.BIND_ADDR)
def bind_addr(client, request, _tail, _files):
    _find(client, request).bind(request.ip, request.port)
    return {}, []


@call(Opcode.RESOLVE_ADDR)
def resolve_addr(client, request, _tail, _files):
    _find(client, request).resolve(request.src_ip, request.src_port, request.dst_ip, request.dst_port,
                                   request.timeout_ms)
    return {}, []


@call(Opcode.RESOLVE_ROUTE)
def resolve_route(client, request, _tail, _files):
    _find(client, request).resolve_route()
    return {}, []


@call(Opcode.QUERY_ROUTE)
def query_route(client, request, _tail, _files):
    one = _find(client, request)
    route = {name: getattr(one, name) for name in ("src_ip", "src_port", "dst_ip", "dst_port")}
    if one.src_ip:
        route |= {"node_guid": guid_of(client.open().card.mac), "sgid": field_of(GID.of_ipv4(one.src_ip)),
                  "mtu": int(client.context.query_port(1).active_mtu)}
    if one.dst_ip:
        route |= {"dgid": field_of(GID.of_ipv4(one.dst_ip)), "paths": int(one.routed)}
    return route, []


@call(Opcode.LISTEN)
def listen(client, request, _tail, _files):
    _find(client, request).listen(request.backlog)
    return {}, []


@call(Opcode.CONNECT)
def connect(client, request, _tail, _files):
    _find(client, request).connect(request)
    return {}, []


@call(Opcode.ACCEPT)
def accept(client, request, _tail, _files):
    one = _find(client, request)
    if request.valid:
        one.accept(request, request.user)
    else:
        one.establish()
    return {}, []


@call(Opcode.REJECT)
def reject(client, request, _tail, _files):
    if request.reason not in REASONS:
        raise InvalidValue(f"{request.reason} is no reason that a program has")
    _find(client, request).reject(request.reason, request)
    return {}, []


@call(Opcode.DISCONNECT)
def disconnect(client, request, _tail, _files):
    _find(client, request).disconnect()
    return {}, []


@call(Opcode.NOTIFY)
def notify(client, request, _tail, _files):
    _find(client, request)
    if request.event != EventType.COMM_EST:
        raise InvalidValue(f"nobody needs to be told of event {request.event}")
    return {}, []


@call(Opcode.INIT_QP_ATTR)
def init_qp_attr(client, request, _tail, _files):
    attr, mask = _find(client, request).qp_attr(request.qp_state)
    return qp_attr_fields(attr) | {"mask": int(mask)}, []
