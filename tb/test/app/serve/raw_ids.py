"""A program without librdmacm that manages connection identifiers with the daemon's messages."""

import os

from weft.driver.cm.enums import EventType, PortSpace
from weft.driver.ibverbs.messages import CONN_PARAM, Opcode
from weft.driver.terms.enums import QPType
from weft.tb.verify.programs.raw_client import TURNS_MAX, RawClient

IPS = {"a": 0x0A00_0001, "b": 0x0A00_0002}
QPN = 0x1234


def param(qp_num=QPN, data=b"", **more):
    """Return fields of a connection's parameters."""
    usual = {"responder_resources": 4, "initiator_depth": 2, "retry_count": 7, "rnr_retry_count": 7}
    given = usual | {"qp_num": qp_num, "private_data": int.from_bytes(data, "little"),
                     "private_data_len": len(data)} | more
    assert set(given) <= {name for name, *_ in CONN_PARAM}
    return given


class RawIds(RawClient):
    """A program with an event channel."""

    def __init__(self, daemon, host):
        super().__init__(daemon, host)
        self.channel = self.make_channel()

    def make_channel(self):
        """Create another event channel; return its handle."""
        answer, (file,) = self.call(Opcode.CREATE_CM_CHANNEL)
        os.close(file)
        return answer.handle

    def do(self, opcode, handle, **fields):
        """Send a request about an object; return the fields of the response."""
        return self.call(opcode, handle=handle, **fields)[0]

    def new(self, user=1, channel=None):
        """Create an identifier; return its handle."""
        return self.call(Opcode.CREATE_ID, channel=channel or self.channel, user=user, port_space=PortSpace.TCP,
                         qp_type=QPType.RC)[0].handle

    def listen(self, port, backlog=0, user=1):
        """Create a listening identifier; return its handle."""
        one = self.new(user)
        self.do(Opcode.BIND_ADDR, one, port=port)
        self.do(Opcode.LISTEN, one, backlog=backlog)
        return one

    def event(self, kind=None, channel=None):
        """Return the next event; check its kind."""
        for _ in range(TURNS_MAX):
            found = self.do(Opcode.GET_CM_EVENT, channel or self.channel)
            if found.there:
                assert kind in (None, found.event), EventType(found.event)
                return found
        raise AssertionError("no event")

    def request(self, ip, port, user=1, **more):
        """Create an identifier and request a connection; return the handle."""
        one = self.new(user)
        self.do(Opcode.RESOLVE_ADDR, one, dst_ip=ip, dst_port=port, timeout_ms=2000)
        self.event(EventType.ADDR_RESOLVED)
        self.do(Opcode.RESOLVE_ROUTE, one)
        self.event(EventType.ROUTE_RESOLVED)
        self.do(Opcode.CONNECT, one, **param(**more))
        return one


def connected(server, client, port=4000, ip=IPS["b"]):
    """Return the handles of the two ends of a connection, and of the listener."""
    listener = server.listen(port)
    theirs = client.request(ip, port, user=7)
    ours = server.event(EventType.CONNECT_REQUEST).id
    server.do(Opcode.ACCEPT, ours, user=9, valid=1, **param())
    client.event(EventType.CONNECT_RESPONSE)
    client.do(Opcode.ACCEPT, theirs)
    server.event(EventType.ESTABLISHED)
    return ours, theirs, listener
