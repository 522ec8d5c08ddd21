"""A host that loses power and comes again: its daemon ends without a farewell, and the next one has its seed."""

import contextlib
import socket

import pytest

from weft.driver.cm.enums import EventType
from weft.driver.connection.messages import RejectReason
from weft.driver.ibverbs.messages import Opcode
from weft.tb.app.serve.functional import FunctionalBackend
from weft.tb.app.serve.switch import UdpLink
from weft.tb.test.app.serve.raw_ids import IPS, QPN, RawIds, connected, param
from weft.tb.test.app.serve.test_udp_link import free_ports
from weft.tb.verify.programs.local import REST_S, local_daemon

PORT = 4000


class _PolledBackend(FunctionalBackend):
    def rest_s(self):
        return REST_S


class _Together:
    """One of several daemons in this process; a turn of it is a turn of all that have power."""

    def __init__(self, daemon, powered):
        self.daemon, self.paths, self._powered = daemon, daemon.paths, powered

    def turn(self):
        for daemon in self._powered:
            daemon.turn()


class _Hosts:
    """Hosts a and b of two daemons with a UDP link between them."""

    def __init__(self, stack):
        self._stack, self._ports, self._powered, self._links = stack, free_ports(2), [], {}

    def start(self, host):
        """Start the daemon of a host; return what programs need of it."""
        first = "ab".index(host)
        own, other = self._ports[first], self._ports[1 - first]
        self._links[host] = UdpLink(socket.AF_INET, ("127.0.0.1", other), own)
        daemon, _ = self._stack.enter_context(local_daemon(
            (host,), seed=7, first=first + 1, uplink=self._links[host], backend_type=_PolledBackend))
        self._powered.append(daemon)
        return _Together(daemon, self._powered)

    def cut(self, host, together):
        """End a daemon without a farewell: nothing that it still does leaves the host."""
        self._powered.remove(together.daemon)
        together.daemon.backend.switch.uplink = lambda frame: None
        self._links[host].close()


@pytest.mark.parametrize(("refused_before", "answer"), [(0, EventType.UNREACHABLE), (1, EventType.REJECTED)],
                         ids=["the same numbers", "another number of the connection manager"])
def test_a_host_that_lost_power_connects_again_with_the_same_qpn(refused_before, answer):
    """IBTA 12.9.8.3.1: a request is refused as stale, and ends the connection that the server still has.

    A request with all numbers of the former one is a duplicate of it: the client receives no answer, and its rejection
    after the timeout ends the former connection.
    """
    with contextlib.ExitStack() as stack:
        hosts = _Hosts(stack)
        here, there = hosts.start("a"), hosts.start("b")
        server = RawIds(there, "b")
        stale, _, _ = connected(server, RawIds(here, "a"), PORT)
        hosts.cut("a", here)
        client = RawIds(hosts.start("a"), "a")
        for _ in range(refused_before):
            client.request(IPS["b"], PORT + 1, qp_num=QPN + 1)
            client.event(EventType.REJECTED)
        client.request(IPS["b"], PORT)
        assert client.event(answer).status == RejectReason.STALE_CONN or answer is EventType.UNREACHABLE
        assert server.event(EventType.DISCONNECTED).id == stale
        theirs = client.request(IPS["b"], PORT)
        ours = _next(server, EventType.CONNECT_REQUEST)
        server.do(Opcode.ACCEPT, ours, user=9, valid=1, **param())
        client.event(EventType.CONNECT_RESPONSE)
        client.do(Opcode.ACCEPT, theirs)
        assert _next(server, EventType.ESTABLISHED) == ours


def _next(server, kind):
    """Return the identifier of the next event, which is of a kind; the former connection may end before."""
    while (event := server.event()).event == EventType.TIMEWAIT_EXIT:
        pass
    assert event.event == kind, EventType(event.event)
    return event.id
