"""Two agents over good and bad networks: a connection is made once or not at all, and no state of it remains."""

import random
from dataclasses import replace

import pytest

from weft.driver.connection.agent import Agent
from weft.driver.connection.connection import CmNotice, Offer, State
from weft.driver.connection.messages import Attribute, RejectReason, gid_of, parse
from weft.driver.protocol.timer import ack_timeout_ns
from weft.tb.test.driver.connection.network import DELAY_NS, OFFER, TIMEOUT, Faults, Network, Program

BAD = Faults(loss=0.2, repeat=0.2, late=0.3)
MANY, SLOW_NS = 100, 200_000     # SLOW_NS: more than one response time-out


def kinds(network, source):
    """Return the kinds of the messages that a host sent, in order."""
    return [parse(data).kind.name for ip, _, data in network.sent if ip == source]


def gone(network):
    """Return true if no agent holds any state of a connection."""
    return not any(agent.connections or agent._by_peer or agent._by_qp for agent in network.agents.values())


def open_pair(network):
    server, client = Program(network, 2), Program(network, 1)
    server.listen()
    return server, client.connect(2)


def test_messages_of_a_connection_without_losses():
    network = Network(1)
    server, client = open_pair(network)
    assert network.run(lambda: server.state is State.ESTABLISHED)
    assert network.now == 3 * DELAY_NS
    client.connection.disconnect(network.now)
    network.run()
    assert kinds(network, 1) == ["REQ", "RTU", "DREQ"] and kinds(network, 2) == ["REP", "DREP"]
    assert server.notice == [CmNotice.ESTABLISHED, CmNotice.DISCONNECTED, CmNotice.TIMEWAIT_EXIT] and gone(network)
    assert client.notice == [CmNotice.RESPONSE, CmNotice.DISCONNECTED, CmNotice.TIMEWAIT_EXIT]


def test_both_ends_know_the_parameters_of_the_peer():
    network = Network(1)
    asked = Offer(qpn=7, psn=9, responder_resources=3, initiator_depth=16, rnr_retry_count=2, srq=1, mtu=4,
                  ack_timeout=20, retry_count=5)
    server, client = Program(network, 2), Program(network, 1)
    server.listen()
    client.connect(2, offer=asked)
    network.run(lambda: server.state is State.ESTABLISHED)
    assert server.connection.peers == asked
    assert client.connection.peers == Offer(OFFER.qpn, OFFER.psn, 4, 2, 7, 0)
    assert (server.connection.mine.responder_resources, server.connection.mine.initiator_depth) == (4, 2)
    modest = Offer(qpn=1, psn=1, responder_resources=1, initiator_depth=3)
    assert OFFER.within(modest).responder_resources == 3 and OFFER.within(modest).initiator_depth == 1


@pytest.mark.parametrize(("lost", "again"), [("REP", "REQ"), ("DREP", "DREQ"), ("RTU", "REP")])
def test_lost_response_is_repeated_on_request(lost, again):
    network = Network(1)
    server, client = open_pair(network)
    source = 1 if lost == "RTU" else 2
    if lost == "DREP":
        network.run(lambda: server.state is State.ESTABLISHED)
        client.connection.disconnect(network.now)
    network.run(lambda: lost in kinds(network, source))
    network._queue.clear()      # it was the only datagram in flight
    if lost == "REP":
        server.connection.deadline = None      # not recovered by the time-out of the server
    answered = {"REP": lambda: client.state is State.ESTABLISHED, "DREP": lambda: client.state is State.TIMEWAIT,
                "RTU": lambda: server.state is State.ESTABLISHED}[lost]
    assert network.run(answered)
    assert kinds(network, source).count(lost) == 2 and kinds(network, 3 - source).count(again) == 2


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_lost_rtu_is_repeated_early_after_an_mra(lost):
    """A lost RTU is repeated early, although the client asked for more time.

    A repeated REP makes the client send an MRA that asks for more than a second.
    """
    network = Network(1)
    server, client = Program(network, 2), Program(network, 1)
    server.listen()
    # its program takes a while to establish
    client.receive = lambda connection, notice: client.notice.append(notice)
    client.connect(2)
    network.run(lambda: client.state is State.REP_RCVD)
    network.send(*network.sent[-1])
    assert network.run(lambda: server.connection.deadline - network.now > 1_000_000_000)
    assert kinds(network, 1) == ["REQ", "MRA"]
    start, network.faults = network.now, Faults(loss=1.0)
    client.connection.establish(network.now)
    network.run(lambda: kinds(network, 1).count("RTU") == lost)
    network.faults = Faults()
    assert network.run(lambda: server.state is State.ESTABLISHED)
    assert network.now - start == ((1 << lost) - 1) * ack_timeout_ns(TIMEOUT.response_timeout) + DELAY_NS
    network.run()
    assert client.state is State.ESTABLISHED and network.now - start < 1_100_000_000, "it gets no end of notices"
    assert kinds(network, 1).count("RTU") == 14 and kinds(network, 2) == ["REP", "REP"]


@pytest.mark.parametrize("run", range(8))
def test_programs_see_no_difference_on_a_bad_network(run, bench_seed):
    seed = f"{bench_seed}/{run}"
    network = Network(seed, BAD)
    server, client = open_pair(network)
    assert network.run(lambda: server.state is State.ESTABLISHED is client.state), seed
    (server, client)[run % 2].connection.disconnect(network.now)
    if run % 3 == 0:     # both at the same time
        (client, server)[run % 2].connection.disconnect(network.now)
    network.run()
    for program, first in ((server, CmNotice.ESTABLISHED), (client, CmNotice.RESPONSE)):
        assert program.notice == [first, CmNotice.DISCONNECTED, CmNotice.TIMEWAIT_EXIT], seed
    assert gone(network), seed


def test_bad_network_loses_and_duplicates_frames(bench_seed):
    network = Network(bench_seed, BAD)
    for _ in range(10):
        server, client = Program(network, 2), Program(network, 1)
        listener = server.listen()
        client.connect(2)
        network.run(lambda server=server, client=client: server.state is State.ESTABLISHED is client.state)
        client.connection.disconnect(network.now)
        network.run()
        listener.close()
    assert min(network.outcomes.values()) > 0 and len(network.outcomes) == 3
    assert len(network.sent) > 10 * 5


def test_missing_host_times_out():
    network = Network(1, hosts=1)
    client = Program(network, 1).connect(2)
    network.run()
    assert client.notice == [CmNotice.UNREACHABLE] and client.connection.status < 0 and gone(network)
    assert kinds(network, 1) == ["REQ"] * (TIMEOUT.retries + 1) + ["REJ"]


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_silent_peer_is_given_up_in_every_state(stop):
    """After ``stop`` messages the network loses everything."""
    network = Network(1)
    server, client = open_pair(network)
    assert network.run(lambda: len(network.sent) >= stop)
    network.faults = Faults(loss=1.0)
    network._queue.clear()
    for program in (server, client):
        if program.state is State.ESTABLISHED:
            program.connection.disconnect(network.now)
    network.run()
    ends = {CmNotice.UNREACHABLE, CmNotice.TIMEWAIT_EXIT}
    assert gone(network) and all(p.notice[-1] in ends for p in (server, client) if p.connection is not None)


def test_slow_program_is_waited_for():
    network = Network(1)
    server, client = Program(network, 2), Program(network, 1)
    asked = []
    server.listen(on_request=lambda connection: asked.append(connection) or server.receive)
    client.connect(2)
    network.run(lambda: kinds(network, 2) == ["MRA"])
    client_received = client.connection.deadline
    network.run(lambda: client.connection.deadline != client_received)
    assert client.state is State.REQ_SENT and client.connection.deadline > 1_000_000_000
    server.accept(asked[0])
    assert network.run(lambda: server.state is State.ESTABLISHED)
    assert kinds(network, 1) == ["REQ", "REQ", "RTU"]


def test_wait_for_an_unresponsive_program_ends():
    network = Network(1)
    server, client = Program(network, 2), Program(network, 1)
    server.listen(on_request=lambda connection: lambda *_: None)
    client.connect(2)
    network.run()
    assert client.notice == [CmNotice.UNREACHABLE] and gone(network)


def test_rejections_by_program_and_agent():
    network = Network(1)
    server = Program(network, 2)
    listener = server.listen(on_request=lambda connection: connection.reject(private_data=b"no") or server.receive)
    client = Program(network, 1).connect(2)
    other = Program(network, 1).connect(2, port=7472)
    network.run()
    assert client.notice == other.notice == [CmNotice.REJECTED] and not listener.pending
    assert client.connection.status == RejectReason.CONSUMER_DEFINED
    assert client.connection.private_data.rstrip(b"\0") == b"no" and len(client.connection.private_data) == 148
    assert other.connection.status == RejectReason.INVALID_SERVICE_ID and gone(network)


def test_private_data_and_their_limits():
    network = Network(1)
    server, client = Program(network, 2), Program(network, 1)
    seen = []
    server.listen(on_request=lambda connection: seen.append(connection.private_data) or server.accept(connection))
    client.connect(2, private_data=bytes(range(56)))
    network.run(lambda: client.state is State.ESTABLISHED)
    assert seen == [bytes(range(56))]
    assert client.connection.private_data == b"welcome".ljust(196, b"\0")
    with pytest.raises(ValueError, match="private data"):
        Program(network, 1).connect(2, private_data=bytes(57))


def test_requests_beyond_the_backlog_wait():
    network = Network(1, hosts=4)
    server = Program(network, 4)
    asked = []
    server.listen(backlog=2, on_request=lambda connection: asked.append(connection) or server.receive)
    clients = [Program(network, ip).connect(4) for ip in (1, 2, 3)]
    network.run(lambda: network.now > 3 * 131_072)
    assert len(asked) == 2 and network.agents[4].counts["backlog_full"] > 0
    for _ in range(3):
        assert network.run(lambda: asked)
        server.accept(asked.pop(0))
        assert network.run(lambda: server.state is State.ESTABLISHED)
    assert all(client.state is State.ESTABLISHED for client in clients)


@pytest.mark.parametrize("backlog", [1, 3])
def test_many_requests_at_once_are_all_connected_while_the_program_accepts(backlog):
    """The program takes longer for one request than the requesters wait for an answer."""
    network = Network(1, hosts=MANY + 1)
    server, asked = network.agents[MANY + 1], []
    listener = server.listen(7471, backlog, lambda connection: asked.append(connection) or (lambda *_: None))
    clients = [Program(network, ip).connect(MANY + 1) for ip in range(1, MANY + 1)]
    for n in range(MANY):
        assert network.run(lambda: asked)
        assert len(listener.pending) <= backlog
        network.run(limit_ns=network.now + SLOW_NS)
        asked.pop(0).accept(Offer(qpn=2 + n, psn=1), b"", network.now)
    network.run(lambda: all(client.state is State.ESTABLISHED for client in clients))
    assert all(client.state is State.ESTABLISHED for client in clients)
    assert server.counts["backlog_full"] and not (listener.pending or listener.waiting)


def test_requests_that_wait_are_rejected_when_their_listener_closes():
    network = Network(1, hosts=4)
    server = Program(network, 4)
    listener = server.listen(backlog=1, on_request=lambda connection: lambda *_: None)
    clients = [Program(network, ip).connect(4) for ip in (1, 2, 3)]
    network.run(lambda: len(listener.waiting) == 2)
    listener.close()
    network.run(lambda: sum(client.notice == [CmNotice.REJECTED] for client in clients) == 2)
    assert not listener.waiting and len(listener.pending) == 1
    network.run()
    assert gone(network)


def restarted(network, ip, seed):
    """Replace the agent of a host by another one that knows of no connection; return a program on it."""
    network.agents[ip] = Agent(ip=ip, guid=ip, random=random.Random(seed), timeout=TIMEOUT,
                               send=lambda to, mac, data: network.send(ip, to, data))
    return Program(network, ip)


@pytest.mark.parametrize("seed", ["another", "agent 1 1"], ids=["other numbers", "the same numbers"])
def test_a_peer_that_lost_power_is_connected_again(seed):
    """IBTA 12.9.8.3.1, receiver of REQ. With the same random numbers only the PSN of the second request differs."""
    network = Network(1)
    server, client = open_pair(network)
    network.run(lambda: server.state is State.ESTABLISHED)
    stale, number, offer = server.connection, client.connection.local_id, replace(OFFER, psn=7)
    client, network.sent[:] = restarted(network, 1, seed), []
    client.connect(2, offer=offer)
    assert (client.connection.local_id == number) == (seed != "another")
    network.run(lambda: client.notice)
    assert client.notice == [CmNotice.REJECTED] and client.connection.status == RejectReason.STALE_CONN
    assert network.run(lambda: stale.state is State.TIMEWAIT) and server.notice[-1] is CmNotice.DISCONNECTED
    assert kinds(network, 2) == ["REJ", "DREQ"] and kinds(network, 1) == ["REQ", "DREP"]
    later, again = Program(network, 2), Program(network, 1)
    server.agent.listeners[7471].on_request = later.accept
    again.connect(2, offer=offer)
    network.run(lambda: later.state is State.ESTABLISHED)
    network.run(lambda: stale.state is State.CLOSED)
    assert again.state is later.state is State.ESTABLISHED and server.notice[-1] is CmNotice.TIMEWAIT_EXIT


def test_a_peer_that_lost_power_and_accepts_with_a_qp_that_is_connected():
    """IBTA 12.9.8.3.1, receiver of REP."""
    network = Network(1)
    server, client = open_pair(network)
    network.run(lambda: server.state is State.ESTABLISHED)
    stale, network.sent[:] = client.connection, []
    server = restarted(network, 2, "another")
    server.listen()
    again = Program(network, 1).connect(2, offer=replace(OFFER, qpn=99))
    network.run(lambda: again.notice and server.notice)
    assert again.notice == [CmNotice.REJECTED] == server.notice and again.connection.status == RejectReason.STALE_CONN
    network.run(lambda: stale.state is State.TIMEWAIT)
    assert client.notice[-1] is CmNotice.DISCONNECTED
    once_more = Program(network, 1).connect(2, offer=replace(OFFER, qpn=99))
    network.run(lambda: server.state is State.ESTABLISHED)
    network.run(lambda: stale.state is State.CLOSED)
    assert once_more.state is server.state is State.ESTABLISHED


def test_a_connection_whose_peer_cannot_be_asked_ends_as_well():
    """The peer answers no DREQ, and its second request comes before the first connection has ended."""
    network = Network(1)
    server, _ = open_pair(network)
    network.run(lambda: server.state is State.ESTABLISHED)
    stale = server.connection
    client = restarted(network, 1, "another").connect(2)
    network.run(lambda: client.notice)
    del network.agents[1]
    network.run(lambda: stale.state is State.CLOSED)
    assert server.notice[-2:] == [CmNotice.DISCONNECTED, CmNotice.TIMEWAIT_EXIT] and gone(network)


def test_connected_qp_is_not_connected_again():
    network = Network(1)
    server, client = open_pair(network)
    network.run(lambda: server.state is State.ESTABLISHED)
    again = Program(network, 1).connect(2)
    network.run()
    assert again.notice == [CmNotice.REJECTED] and again.connection.status == RejectReason.STALE_CONN
    assert client.notice[-2:] == server.notice[-2:] == [CmNotice.DISCONNECTED, CmNotice.TIMEWAIT_EXIT] and gone(network)


@pytest.mark.parametrize("wanted", [State.REQ_SENT, State.REQ_RCVD, State.REP_SENT])
def test_end_that_gives_up_notifies_the_peer(wanted):
    network = Network(1)
    server, client = Program(network, 2), Program(network, 1)
    server.listen(on_request=server.accept if wanted is State.REP_SENT else
                  lambda connection: setattr(server, "connection", connection) or server.receive)
    client.connect(2)
    network.run(lambda: wanted in (client.state, server.state))
    (client if wanted is State.REQ_SENT else server).connection.abandon(network.now)
    network.run()
    other = server if wanted is State.REQ_SENT else client
    assert gone(network) and (other.connection is None or other.notice[-1] in (CmNotice.REJECTED,
                                                                               CmNotice.TIMEWAIT_EXIT))


def test_agents_know_hosts_by_their_addresses():
    network = Network(1)
    open_pair(network)
    request = parse(network.sent[0][2])
    assert request.kind is Attribute.REQ and request.local_gid == gid_of(1) and request.remote_gid == gid_of(2)
    assert request.service_id == 0x0106_1D2F
