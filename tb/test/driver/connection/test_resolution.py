"""Resolution of services to UD queue pairs, on a network that loses, repeats and delays messages."""

import errno
import random

import pytest

from weft.driver.connection.agent import REQUESTS_KEPT
from weft.driver.connection.messages import PORT_SPACE_TCP, PORT_SPACE_UDP, Attribute, build, header, parse, service_id
from weft.driver.connection.resolution import ANSWERS_KEPT, ResolutionState, SidrStatus
from weft.tb.test.driver.connection.network import OFFER, Faults, Network

PORT, QPN, QKEY = 7174, 0xFFF_123, 0x0123_4567
ROUGH = Faults(loss=0.3, repeat=0.3, late=0.2)


class Service:
    """Listener at host 2, which answers each request or keeps it in ``asked``."""

    def __init__(self, network, status=SidrStatus.VALID, *, backlog=0, at_once=True):
        self.network, self.status, self.at_once, self.asked, self.expired = network, status, at_once, [], []
        self.listener = network.agents[2].listen(PORT, backlog, self.on_request, datagrams=True)

    def on_request(self, resolution):
        self.asked.append(resolution)
        if self.at_once:
            self.answer(resolution)
        return self.expired.append

    def answer(self, resolution):
        resolution.answer(self.network.now, self.status, b"answer", qpn=QPN, qkey=QKEY)


def resolve(network, port=PORT, **options):
    """Request a service of host 2 from host 1; return (resolution, list that gets it at the end)."""
    ended = []
    return network.agents[1].resolutions.resolve(2, port, b"question", network.now, ended.append, **options), ended


def request(source, *, request_id=5, port=PORT, space=PORT_SPACE_UDP, header_ip=None):
    return build(Attribute.SIDR_REQ, 1, header(source if header_ip is None else header_ip, 9, 2),
                 request_id=request_id, pkey=0xFFFF, service_id=service_id(port, space))


@pytest.mark.parametrize("faults", [Faults(), ROUGH], ids=["good", "rough"])
def test_a_service_is_resolved_once(faults, bench_seed):
    network = Network(bench_seed, faults)
    service = Service(network)
    pairs = [resolve(network, src_port=99) for _ in range(20)]
    assert network.run(lambda: all(ended for _, ended in pairs))
    for one, ended in pairs:
        assert ended == [one] and one.state is ResolutionState.CLOSED
        assert (one.status, one.qpn, one.qkey) == (SidrStatus.VALID, QPN, QKEY)
        assert one.private_data == b"answer".ljust(136, b"\0")
    assert len(service.asked) == 20 and not service.expired
    assert {(asked.peer_ip, asked.peer_port) for asked in service.asked} == {(1, 99)}
    assert all(asked.private_data == b"question".ljust(180, b"\0") for asked in service.asked)
    assert not network.run()      # until nothing is due
    assert not any(len(agent.resolutions) for agent in network.agents.values())


@pytest.mark.parametrize("status", [SidrStatus.REJECTED, SidrStatus.NO_QP])
def test_rejections_have_a_status_and_private_data(status):
    network = Network(1)
    Service(network, status)
    one, ended = resolve(network)
    network.run(lambda: ended)
    assert one.status == status and one.private_data[:6] == b"answer"


def test_missing_services_and_hosts():
    network = Network(1, hosts=3)
    network.agents[3].listen(PORT, 0, lambda connection: None)      # of connections: another port space
    one, ended = resolve(network)
    network.run(lambda: ended)
    assert one.status == SidrStatus.UNSUPPORTED
    other = network.agents[1].resolutions.resolve(3, PORT, b"", network.now, ended.append)
    silent = network.agents[1].resolutions.resolve(77, PORT, b"", network.now, ended.append)
    network.run(lambda: len(ended) == 3)
    assert (other.status, silent.status) == (SidrStatus.UNSUPPORTED, -errno.ETIMEDOUT)
    assert sum(to == 77 for _, to, _ in network.sent) == network.agents[1].timeout.retries + 1


def test_late_answers_reach_a_requester_that_still_waits():
    network = Network(1)
    service = Service(network, at_once=False)
    one, ended = resolve(network)
    network.run(lambda: network.now > 500_000)
    assert len(service.asked) == 1 and not ended      # repeated requests are one request
    service.answer(service.asked[0])
    network.run(lambda: ended)
    assert one.status == SidrStatus.VALID


def test_a_request_expires_when_its_sender_has_given_up():
    network = Network(1)
    service = Service(network, at_once=False)
    one, ended = resolve(network)
    network.run()
    assert one.status == -errno.ETIMEDOUT and service.expired == service.asked
    assert not len(network.agents[2].resolutions) and not service.listener.pending


def test_abandoned_ends():
    network = Network(1)
    service = Service(network, at_once=False)
    one, ended = resolve(network)
    network.run(lambda: service.asked)
    service.asked[0].abandon(network.now)      # answers for a program that ended
    network.run(lambda: ended)
    assert one.status == SidrStatus.REJECTED
    one, ended = resolve(network)
    one.abandon(network.now)
    network.run()
    assert not ended and not len(network.agents[1].resolutions)


def test_a_listener_that_closes_rejects_what_its_program_did_not_get():
    network = Network(1)
    service = Service(network, backlog=1, at_once=False)
    pairs = [resolve(network) for _ in range(3)]
    network.run(lambda: len(service.listener.waiting) == 2)
    service.listener.close()
    network.run(lambda: sum(len(ended) for _, ended in pairs) == 2)
    assert {one.status for one, ended in pairs if ended} == {SidrStatus.REJECTED}


def test_answers_of_others_are_ignored():
    network = Network(1, hosts=3)
    Service(network, at_once=False)
    one, ended = resolve(network)
    agent = network.agents[1]
    for source, service, number in ((3, one.service_id, one.request_id), (2, one.service_id ^ 1, one.request_id),
                                    (2, one.service_id, one.request_id ^ 1)):
        agent.on_datagram(build(Attribute.SIDR_REP, 1, request_id=number, service_id=service, qpn=9), source, source, 0)
    assert not ended and agent.counts["stray_SIDR_REP"] == 3


def test_requests_with_invalid_contents_are_refused_at_once():
    network = Network(1)
    service, agent = Service(network), network.agents[2]
    for data in (request(1, port=PORT + 1), request(1, space=PORT_SPACE_TCP), request(1, header_ip=3),
                 build(Attribute.SIDR_REQ, 1, b"", request_id=1, service_id=service_id(PORT, PORT_SPACE_UDP))):
        agent.on_datagram(data, 1, 1, 0)
        assert parse(network.sent[-1][2]).status == SidrStatus.UNSUPPORTED
    assert not service.asked and not len(agent.resolutions)


def test_a_flood_is_bounded(bench_seed):
    rng, network = random.Random(bench_seed), Network(bench_seed)
    service = Service(network, at_once=False, backlog=4)
    agent = network.agents[2]
    for _ in range(2000):
        agent.on_datagram(request(77, request_id=rng.getrandbits(32)), 77, 77, 0)
    assert len(agent.resolutions) == REQUESTS_KEPT and agent.counts["backlog_full"] > 1000
    service.at_once = True
    for asked in service.asked[:4]:
        service.answer(asked)
    for _ in range(2 * ANSWERS_KEPT):
        agent.on_datagram(request(78, request_id=rng.getrandbits(32)), 78, 78, 0)
    assert len(agent.resolutions) == ANSWERS_KEPT
    network.run()
    assert not len(agent.resolutions)


def test_both_port_spaces_have_the_port():
    network = Network(1)
    service, agent = Service(network), network.agents[2]
    connections = []
    agent.listen(PORT, 0, lambda connection: connections.append(connection) or (lambda *_: None))
    with pytest.raises(ValueError, match="has port"):
        agent.listen(PORT, 0, lambda one: None, datagrams=True)
    network.agents[1].connect(2, PORT, OFFER, b"", 0, lambda *_: None)
    resolve(network)
    network.run(lambda: connections and service.asked)
    assert len(connections) == len(service.asked) == 1
