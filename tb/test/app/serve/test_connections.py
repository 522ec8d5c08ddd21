"""Tests of connection identifiers: interaction of programs, and cleanup after programs that end or break rules."""

import collections
import errno
import random

import pytest

from weft.driver.cm.card_agent import CardAgent
from weft.driver.cm.enums import RDMA_OPTION_ID, EventType, Option
from weft.driver.connection.messages import RejectReason
from weft.driver.ibverbs.messages import MESSAGES, Kind, Opcode
from weft.driver.serve.connection_ids import ConnectionId
from weft.driver.serve.ports import Ports
from weft.driver.serve.quota import OF_ALL, ResourceKind
from weft.driver.terms.enums import MTU, QPAttrMask, QPState
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.app.serve.raw_ids import IPS, QPN, RawIds, connected, param
from weft.tb.verify.programs.hostile import settle
from weft.tb.verify.programs.local import local_daemon
from weft.tb.verify.programs.raw_client import Disconnected, Rejected

PORT, CALLS, TURNS_MAX, MANY = 4000, 600, 100_000, 100
OF_IDS = tuple(range(Opcode.DESTROY_ID, Opcode.INIT_QP_ATTR + 1))


@pytest.fixture
def served():
    with local_daemon(loss=0.02) as (daemon, messages):
        yield daemon, messages


@pytest.fixture
def ends(served):
    """Return programs on hosts b and a."""
    daemon, messages = served
    yield RawIds(daemon, "b"), RawIds(daemon, "a")
    assert not messages


def agents(daemon):
    return [CardAgent.of(context.card) for context in daemon.backend.contexts]


def empty(daemon):
    """Turn until no card has a connection; check that no state of identifiers is left."""
    for _ in range(TURNS_MAX):
        if not any(agent.agent.connections for agent in agents(daemon)):
            break
        daemon.turn()
    for agent in agents(daemon):
        assert not (agent.agent.connections or agent.agent.listeners or agent.users)
        assert not Ports.of(agent).bound


@pytest.mark.parametrize("same_host", [False, True])
def test_a_connection_from_request_to_end(served, same_host):
    daemon, messages = served
    server = RawIds(daemon, "b")
    client = RawIds(daemon, "b" if same_host else "a")
    server.listen(PORT, user=5)
    theirs = client.request(IPS["b"], PORT, user=7, data=b"hello", initiator_depth=3)
    asked = server.event(EventType.CONNECT_REQUEST)
    assert (asked.user, asked.qp_num, asked.responder_resources, asked.initiator_depth) == (5, QPN, 3, 4)
    assert asked.private_data.to_bytes(256, "little")[:5] == b"hello" and asked.private_data_len == 56
    route = server.do(Opcode.QUERY_ROUTE, asked.id)
    assert (route.src_ip, route.src_port, route.paths) == (IPS["b"], PORT, 1)
    assert route.dst_ip == IPS["b" if same_host else "a"]
    assert route.dst_port == client.do(Opcode.QUERY_ROUTE, theirs).src_port
    server.do(Opcode.ACCEPT, asked.id, user=9, valid=1, **param(QPN + 1, b"you too"))
    answered = client.event(EventType.CONNECT_RESPONSE)
    assert (answered.user, answered.qp_num) == (7, QPN + 1)
    attr = {end: end.do(Opcode.INIT_QP_ATTR, one, qp_state=QPState.RTR) for end, one in
            ((server, asked.id), (client, theirs))}
    assert (attr[server].dest_qp_num, attr[client].dest_qp_num) == (QPN, QPN + 1)
    assert attr[server].dgid == route.dgid and attr[server].mask & QPAttrMask.AV
    assert attr[server].path_mtu == attr[client].path_mtu in list(MTU)
    sends = client.do(Opcode.INIT_QP_ATTR, theirs, qp_state=QPState.RTS)
    assert sends.sq_psn == attr[server].rq_psn
    client.do(Opcode.ACCEPT, theirs)
    assert server.event(EventType.ESTABLISHED).user == 9
    client.do(Opcode.DISCONNECT, theirs)
    for end, one, reported in ((server, asked.id, 2), (client, theirs, 4)):
        end.event(EventType.DISCONNECTED)
        assert end.do(Opcode.DESTROY_ID, one).reported == reported
    server.close(), client.close()
    settle(daemon, 0)
    empty(daemon)
    assert not messages


def test_missing_listener_and_missing_host_are_reported(ends):
    server, client = ends
    client.request(IPS["b"], PORT)
    assert client.event(EventType.REJECTED).status == RejectReason.INVALID_SERVICE_ID
    client.do(Opcode.RESOLVE_ADDR, client.new(), dst_ip=IPS["b"] + 50, dst_port=1, timeout_ms=1)
    client.event(EventType.ADDR_ERROR)


def test_request_is_rejected_with_a_reason(ends):
    server, client = ends
    server.listen(PORT)
    client.request(IPS["b"], PORT)
    one = server.event(EventType.CONNECT_REQUEST).id
    server.do(Opcode.REJECT, one, reason=0, private_data_len=2, private_data=int.from_bytes(b"no", "little"))
    refused = client.event(EventType.REJECTED)
    assert refused.status == RejectReason.CONSUMER_DEFINED
    assert refused.private_data.to_bytes(256, "little")[:3] == b"no\0"


def test_events_move_with_their_identifier(ends):
    server, client = ends
    ours, theirs, _ = connected(server, client)
    other = server.make_channel()
    client.do(Opcode.DISCONNECT, theirs)
    client.event(EventType.DISCONNECTED)
    server.daemon.turn()
    moved = server.do(Opcode.MIGRATE_ID, ours, channel=other)
    assert (moved.reported, moved.moved) == (1, 1)
    server.event(EventType.DISCONNECTED, channel=other)


@pytest.mark.parametrize("stage", ["asked", "answered", "established"])
@pytest.mark.parametrize("gone", ["server", "client"])
def test_ended_program_leaves_no_identifiers_and_its_peer_is_notified(served, stage, gone):
    daemon, messages = served
    server, client = RawIds(daemon, "b"), RawIds(daemon, "a")
    if stage == "established":
        connected(server, client)
    else:
        server.listen(PORT)
        client.request(IPS["b"], PORT)
        one = server.event(EventType.CONNECT_REQUEST).id
        if stage == "answered":
            server.do(Opcode.ACCEPT, one, user=9, valid=1, **param())
            client.event(EventType.CONNECT_RESPONSE)
    (server if gone == "server" else client).close()
    settle(daemon, 1)
    left = client if gone == "server" else server
    if stage == "established":
        left.event(EventType.DISCONNECTED)
    elif gone == "server" or stage == "answered":
        left.event(EventType.REJECTED)
    if gone == "server":
        RawIds(daemon, "b").listen(PORT)       # the port is free again
        settle(daemon, 1)
    left.close()
    settle(daemon, 0)
    empty(daemon)
    assert not messages


def test_pending_request_is_closed_with_its_listener(ends):
    server, client = ends
    listener = server.listen(PORT)
    client.request(IPS["b"], PORT)
    (program,) = (one for one in server.daemon.clients.values() if one.name == server.daemon.backend.hosts["b"])
    while len(program.objects[Kind.CM_ID]) < 2:
        server.daemon.turn()
    assert server.do(Opcode.DESTROY_ID, listener).dropped == 1
    assert not program.objects[Kind.CM_ID]
    client.event(EventType.REJECTED)


def test_port_belongs_to_one_program(ends):
    server, client = ends
    server.listen(PORT)
    for fields in ({"port": PORT}, {"ip": IPS["a"], "port": 1}, {"port": 1 << 16}):
        with pytest.raises(Rejected):
            server.do(Opcode.BIND_ADDR, server.new(), **fields)
    found = set()
    for _ in range(50):
        one = server.new()
        server.do(Opcode.BIND_ADDR, one)
        found.add(server.do(Opcode.QUERY_ROUTE, one).src_port)
    assert len(found) == 50


def bind(program, *, ipv6=0, only=0, listens=True):
    """Create an identifier that is bound to the port, with any address of a family; return its handle."""
    one = program.new()
    if only:
        program.do(Opcode.SET_OPTION, one, level=RDMA_OPTION_ID, name=Option.AFONLY, value=1)
    program.do(Opcode.BIND_ADDR, one, port=PORT, ipv6=ipv6)
    if listens:
        program.do(Opcode.LISTEN, one)
    return one


@pytest.mark.parametrize("first", [0, 1], ids=["IPv4 first", "IPv6 first"])
def test_listeners_of_both_families_share_a_port_if_one_is_for_its_family_only(ends, first):
    server, client = ends
    handles = {ipv6: bind(server, ipv6=ipv6, only=ipv6) for ipv6 in (first, 1 - first)}
    for ipv6 in (0, 1):      # each family has one listener
        with pytest.raises(Rejected) as refused:
            bind(server, ipv6=ipv6, only=ipv6)
        assert refused.value.args[0] == errno.EADDRINUSE
    with pytest.raises(Rejected):
        server.do(Opcode.RESOLVE_ADDR, handles[1], dst_ip=IPS["a"], dst_port=1, timeout_ms=1)
    with pytest.raises(Rejected):
        server.do(Opcode.SET_OPTION, handles[1], level=RDMA_OPTION_ID, name=Option.AFONLY, value=0)
    server.do(Opcode.DESTROY_ID, handles[1])
    client.request(IPS["b"], PORT)
    server.event(EventType.CONNECT_REQUEST)
    bind(server, ipv6=1, only=1)
    server.do(Opcode.DESTROY_ID, handles[0])
    bind(server)


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("order", [({}, {"ipv6": 1}), ({"ipv6": 1}, {}), ({}, {"only": 1}), ({"ipv6": 1}, {"ipv6": 1})],
                         ids=str)
def test_an_ipv6_address_that_means_any_includes_ipv4(ends, order, listens):
    server, _ = ends
    bind(server, **order[0], listens=listens)
    with pytest.raises(Rejected) as refused:
        bind(server, **order[1], listens=listens)
    assert refused.value.args[0] == errno.EADDRINUSE


def test_the_family_is_chosen_also_after_the_address(ends):
    server, _ = ends
    one = bind(server, ipv6=1, listens=False)
    server.do(Opcode.SET_OPTION, one, level=RDMA_OPTION_ID, name=Option.AFONLY, value=1)
    bind(server)
    server.do(Opcode.LISTEN, one)


def test_many_requests_at_once_against_a_backlog_of_one(ends):
    server, client = ends
    server.listen(PORT, backlog=1)
    handles = []
    for user in range(1, MANY + 1):
        one = client.new(user)
        client.do(Opcode.RESOLVE_ADDR, one, dst_ip=IPS["b"], dst_port=PORT, timeout_ms=2000)
        client.event(EventType.ADDR_RESOLVED)
        client.do(Opcode.RESOLVE_ROUTE, one)
        client.event(EventType.ROUTE_RESOLVED)
        handles.append(one)
    for n, one in enumerate(handles):
        client.do(Opcode.CONNECT, one, **param(QPN + n))
    for n in range(MANY):
        asked = server.event(EventType.CONNECT_REQUEST)
        server.do(Opcode.ACCEPT, asked.id, user=100 + n, valid=1, **param(QPN + n))
    answered = {client.event(EventType.CONNECT_RESPONSE).user for _ in range(MANY)}
    assert answered == set(range(1, MANY + 1))


@pytest.mark.parametrize("where", ["_requested", "_report", "_resolved"])
def test_an_unexpected_exception_of_an_identifier_ends_one_connection(monkeypatch, served, where):
    def raising(*_):
        raise ZeroDivisionError

    daemon, messages = served
    good, server, client = (RawIds(daemon, host) for host in "abb")
    server.listen(PORT)
    good.listen(PORT)
    with monkeypatch.context() as patch:
        patch.setattr(ConnectionId, where, raising)
        one = client.new()
        client.do(Opcode.RESOLVE_ADDR, one, dst_ip=IPS["b"], dst_port=PORT, timeout_ms=100)
        if where != "_resolved":
            client.event(EventType.ADDR_RESOLVED)
            client.do(Opcode.RESOLVE_ROUTE, one)
            client.do(Opcode.CONNECT, one, **param())
        if where == "_report":
            server.do(Opcode.REJECT, server.event(EventType.CONNECT_REQUEST).id)
        settle(daemon, 2)
    assert "ZeroDivisionError" in messages[0] and daemon.contained == 1
    other = RawIds(daemon, "b")
    other.request(IPS["a"], PORT)
    good.event(EventType.CONNECT_REQUEST)


def test_program_that_reads_no_events_is_dropped():
    def ask_for_events():
        while True:
            lazy.do(Opcode.RESOLVE_ADDR, lazy.new(), dst_port=PORT, timeout_ms=1)

    with local_daemon(most=OF_ALL | {ResourceKind.EVENTS: 100}) as (daemon, messages):
        lazy, good = RawIds(daemon, "b"), RawIds(daemon, "a")
        with pytest.raises(Disconnected):
            ask_for_events()
        assert "not read" in messages[0]
        good.listen(PORT)
        good.close()
        settle(daemon, 0)
        assert not any(daemon.account.has.values())


def test_random_identifier_requests_leave_consistent_state(served):
    daemon, messages = served
    seed = drawn_seed()
    print(f"again: seed {seed}")
    rng = random.Random(seed)
    crowd = [RandomProgram(RawIds(daemon, host), rng) for host in "abab"]
    found, calls = collections.Counter(), 0
    while calls < CALLS or not all(found[opcode, done] for opcode in OF_IDS for done in (True, False)):
        calls += 1
        assert calls < 100 * CALLS, found
        found.update(rng.choice(crowd).ask())
    assert not messages, messages
    for one in crowd:
        one.program.close()
    settle(daemon, 0)
    assert not any(daemon.account.has.values())
    empty(daemon)


class RandomProgram:
    """A program that sends random requests, and sometimes sensible ones."""

    def __init__(self, program, rng):
        self.program, self.rng = program, rng
        self.handles, self.asked, self.new = [program.new(user=1)], [0], []

    def ask(self):
        """Send some requests; return [(opcode, accepted)]."""
        rng, program = self.rng, self.program
        if len(self.handles) < 20:
            self.handles.append(program.new(user=rng.randrange(1, 1 << 40)))
        one = rng.choice(self.handles)
        if self.new and rng.random() < 0.5:
            steps = [(rng.choice((Opcode.ACCEPT, Opcode.REJECT)), self.new.pop())]
        elif rng.random() < 0.1:
            steps = [(opcode, one) for opcode in (Opcode.RESOLVE_ADDR, Opcode.RESOLVE_ROUTE, Opcode.CONNECT)]
        elif rng.random() < 0.2:
            steps = [(rng.choice((Opcode.ACCEPT, Opcode.REJECT, Opcode.INIT_QP_ATTR)), rng.choice(self.asked))]
        else:
            steps = [(Opcode(rng.choice(OF_IDS)), one)]
        done = []
        for opcode, handle in steps:
            fields = self.fields(opcode, handle)
            handle = fields["handle"]
            try:
                program.call(opcode, **fields)
                done.append((opcode, True))
            except Rejected:
                done.append((opcode, False))
            if opcode is Opcode.DESTROY_ID:
                self.handles = [other for other in self.handles if other != handle] or [0]
            self.take_events(until=handle if done[-1] == (Opcode.RESOLVE_ADDR, True) else None)
        return done

    def take_events(self, until):
        """Take the pending events; if an address is being resolved, wait for the outcome."""
        while (event := self.program.do(Opcode.GET_CM_EVENT, self.program.channel)).there or until is not None:
            if event.event == EventType.CONNECT_REQUEST:
                self.handles.append(event.id)
                self.asked = [*self.asked[-8:], event.id]
                self.new.append(event.id)
            elif event.there and event.id == until:
                until = None

    def fields(self, opcode, handle):
        """Return fields of a request that may be valid."""
        rng, given = self.rng, {}
        for field in MESSAGES[opcode][0].fields:
            if not field.name.startswith("_"):
                some = rng.choice((0, 1, rng.randrange(64), rng.getrandbits(field.width)))
                given[field.name] = some & (1 << field.width) - 1
        likely = {"handle": handle, "channel": self.program.channel, "qp_num": rng.randrange(1 << 24),
                  "port": rng.choice((0, PORT, PORT + 1)), "dst_port": rng.choice((PORT, PORT + 1)), "ip": 0,
                  "src_ip": 0, "src_port": 0, "dst_ip": rng.choice(tuple(IPS.values())), "valid": rng.randrange(2),
                  "level": 0, "name": rng.randrange(5), "event": rng.choice((4, 5)),
                  "private_data_len": rng.choice((0, 56, 57, 148, 149, 197)), "qp_state": rng.randrange(8),
                  "reason": rng.choice((0, 35, 1))}
        given |= {name: value for name, value in likely.items() if name in given and rng.random() < 0.97}
        if "timeout_ms" in given:
            given["timeout_ms"] %= 100      # the test waits for its end
        return given
