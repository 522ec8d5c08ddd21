"""Messages of unknown peers: no exception, no unbounded growth, and no effect on the connections of others."""

import random

import pytest

from weft.driver.connection.agent import BACKLOG_MAX, RESPONSE_TIMEOUT_MAX, SIDR
from weft.driver.connection.connection import CmNotice, State
from weft.driver.connection.messages import (
    LAYOUTS,
    Attribute,
    RejectReason,
    build,
    gid_of,
    header,
    parse,
    private_bytes,
    service_id,
)
from weft.driver.protocol.timer import ack_timeout_ns
from weft.hdl.contract import wire
from weft.tb.test.driver.connection.network import OFFER, Network, Program

SERVER, CLIENT, UNKNOWN_PEER = 1, 2, 3
MESSAGES = 3000


def request(rng, src_ip, *, port=7471, **changes):
    """Return a REQ that is valid except for the ``changes``."""
    fields = {"local_id": rng.randrange(1, 1 << 32), "service_id": service_id(port), "qpn": rng.randrange(2, 1 << 24),
              "psn": 1, "mtu": 5, "local_gid": gid_of(src_ip), "remote_gid": gid_of(SERVER), "max_cm_retries": 3,
              "local_timeout": 5, "remote_timeout": 5, "responder_resources": 1, "initiator_depth": 1} | changes
    private = fields.pop("private", header(src_ip, 1, SERVER))
    return build(Attribute.REQ, rng.getrandbits(64), private, **fields)


class Scene:
    """A connected server and client, and an unknown peer that sends arbitrary messages to the server."""

    def __init__(self, seed, on_request=None):
        self.rng, self.network = random.Random(f"hostile {seed}"), Network(seed, hosts=2)
        self.server, self.client = Program(self.network, SERVER), Program(self.network, CLIENT)
        listener = self.server.listen()
        self.client.connect(SERVER)
        self.network.run(lambda: self.server.state is State.ESTABLISHED)
        listener.close()
        self.agent, self.requests = self.network.agents[SERVER], []
        self.listener = self.agent.listen(7471, 0, on_request or self.take)
        self.network.sent.clear()

    def take(self, connection):
        self.requests.append(connection)
        return lambda *_: None

    def check_untouched(self):
        """Check that the connection is unchanged and works."""
        assert self.server.state is self.client.state is State.ESTABLISHED
        assert self.server.notice == [CmNotice.ESTABLISHED] and self.client.notice == [CmNotice.RESPONSE]
        self.client.connection.disconnect(self.network.now)
        self.network.run()
        assert self.server.notice[1:] == self.client.notice[1:] == [CmNotice.DISCONNECTED, CmNotice.TIMEWAIT_EXIT]

    def check_empty(self):
        """Check that the agent holds no state of any connection."""
        agent = self.agent
        assert not (agent.connections or agent._by_peer or agent._by_qp or self.listener.pending)
        assert len(agent._due) <= 64


def random_message(rng, known):
    """Return a random message with random fields; some of its IDs are correct."""
    kind = rng.choice(list(Attribute))
    fields = {field.name: rng.getrandbits(field.width) for field in LAYOUTS[kind].fields
              if not field.name.startswith("_")}
    for name in ("local_id", "remote_id"):
        if name in fields and rng.random() < 0.5:
            fields[name] = rng.choice(known)
    if kind is Attribute.REQ and rng.random() < 0.7:
        fields |= {"service_id": service_id(7471), "local_gid": gid_of(UNKNOWN_PEER), "transport": 0, "rdc_exists": 0,
                   "extended_transport": 0, "mtu": rng.randrange(7)}
    private = rng.choice([rng.randbytes(private_bytes(kind)), header(rng.choice([UNKNOWN_PEER, CLIENT]), 1, SERVER)])
    return build(kind, rng.getrandbits(64), private, **fields)


def test_random_messages(bench_seed):
    scene = Scene(bench_seed)
    ids = [scene.server.connection.local_id, scene.client.connection.local_id, 0]
    for _ in range(MESSAGES):
        data = random_message(scene.rng, ids)
        if scene.rng.random() < 0.2:
            data = bytearray(data)
            data[scene.rng.randrange(len(data))] ^= 1 << scene.rng.randrange(8)
            data = bytes(data[: scene.rng.choice([len(data), scene.rng.randrange(len(data))])])
        scene.agent.on_datagram(data, UNKNOWN_PEER, UNKNOWN_PEER, scene.network.now)
    assert len(scene.network.sent) < MESSAGES      # never more responses than requests
    assert {"stray_RTU", "stray_DREQ", "refused_INVALID_GID", "refused_INVALID_MTU", "unknown"} <= set(
        scene.agent.counts) and scene.requests
    scene.check_untouched()
    scene.check_empty()


def test_messages_of_an_unknown_peer_are_ignored():
    scene = Scene(1)
    mine, others = scene.server.connection.local_id, scene.client.connection.local_id
    ids = {"local_id": others, "remote_id": mine}
    for kind in set(Attribute) - {Attribute.REQ, *SIDR}:
        more = {"remote_qpn": OFFER.qpn} if kind is Attribute.DREQ else {}
        scene.agent.on_datagram(build(kind, 1, **ids, **more), UNKNOWN_PEER, UNKNOWN_PEER, scene.network.now)
    assert not [data for _, to, data in scene.network.sent if parse(data).kind is not Attribute.REJ]
    scene.check_untouched()
    scene.check_empty()


def test_forged_messages_without_the_identifiers_are_ignored():
    scene = Scene(1)
    mine, others = scene.server.connection.local_id, scene.client.connection.local_id
    for ids in ({"local_id": others, "remote_id": mine ^ 1}, {"local_id": others ^ 1, "remote_id": mine}):
        for kind in (Attribute.DREQ, Attribute.DREP, Attribute.REJ, Attribute.RTU, Attribute.MRA, Attribute.REP):
            scene.agent.on_datagram(build(kind, 1, **ids), CLIENT, CLIENT, scene.network.now)
    wrong_qp = build(Attribute.DREQ, 1, local_id=others, remote_id=mine, remote_qpn=OFFER.qpn ^ 1)
    scene.agent.on_datagram(wrong_qp, CLIENT, CLIENT, scene.network.now)
    scene.check_untouched()
    scene.check_empty()


def test_replayed_messages_change_nothing(bench_seed):
    network = Network(bench_seed)
    server, client = Program(network, SERVER), Program(network, CLIENT)
    requests = []
    listener = server.agent.listen(7471, 0, lambda connection: requests.append(connection) or server.accept(connection))
    client.connect(SERVER)
    network.run(lambda: server.state is State.ESTABLISHED)
    client.connection.disconnect(network.now)
    network.run(lambda: client.state is State.TIMEWAIT is server.state)
    sent, rng = list(network.sent), random.Random(bench_seed)
    for _ in range(200):      # during TIME-WAIT
        source, target, data = rng.choice(sent)
        network.agents[target].on_datagram(data, source, source, network.now)
    assert len(requests) == 1 and server.notice == [CmNotice.ESTABLISHED, CmNotice.DISCONNECTED]
    network.run()
    assert not server.agent.connections and not client.agent.connections
    for _ in range(200):      # after TIME-WAIT: a request may be taken for a new one, but no connection remains
        source, target, data = rng.choice(sent)
        network.agents[target].on_datagram(data, source, source, network.now)
    network.run()
    assert 1 <= len(requests) <= 201 and client.notice[-1] is CmNotice.TIMEWAIT_EXIT
    assert not (server.agent.connections or client.agent.connections or listener.pending)


def test_a_flood_of_requests_is_bounded_and_passes(bench_seed):
    """Requests come from addresses that do not exist, and the program answers none; a valid one is accepted later."""
    scene = Scene(bench_seed)
    for n in range(3 * BACKLOG_MAX):
        address = UNKNOWN_PEER + n % 97
        scene.agent.on_datagram(request(scene.rng, address), address, address, scene.network.now)
    assert len(scene.listener.pending) == len(scene.requests) == BACKLOG_MAX and scene.listener.full
    assert len(scene.agent.connections) == BACKLOG_MAX + 1
    assert scene.agent.counts["backlog_full"] == 2 * BACKLOG_MAX
    assert not scene.network.sent
    other = Program(scene.network, CLIENT)
    again = other.agent.connect(SERVER, 7471, OFFER.__class__(qpn=99, psn=0), b"", scene.network.now, other.receive)
    other.connection = again
    assert scene.network.run(lambda: again.local_id in {c.remote_id for c in scene.requests})
    assert len(scene.requests) == BACKLOG_MAX + 1
    again.abandon(scene.network.now)
    scene.check_untouched()
    scene.check_empty()


def test_request_cannot_extend_its_time_out():
    scene = Scene(1)
    patient = request(scene.rng, UNKNOWN_PEER, local_timeout=31, remote_timeout=31, max_cm_retries=15)
    hasty = request(scene.rng, UNKNOWN_PEER, local_timeout=0, remote_timeout=0, max_cm_retries=0)
    for data in (patient, hasty):
        scene.agent.on_datagram(data, UNKNOWN_PEER, UNKNOWN_PEER, scene.network.now)
    first, second = (connection.deadline - scene.network.now for connection in scene.requests)
    assert first == 16 * ack_timeout_ns(RESPONSE_TIMEOUT_MAX) and second == ack_timeout_ns(1)
    scene.check_untouched()
    scene.check_empty()


@pytest.mark.parametrize(("reason", "changes"), [
    (RejectReason.INVALID_SERVICE_ID, {"port": 7472}),
    (RejectReason.INVALID_SERVICE_ID, {"service_id": 7471}),
    (RejectReason.INVALID_TRANSPORT_TYPE, {"transport": 1}),
    (RejectReason.INVALID_TRANSPORT_TYPE, {"extended_transport": 1}),
    (RejectReason.UNSUPPORTED, {"private": b""}),
    (RejectReason.UNSUPPORTED, {"rdc_exists": 1}),
    (RejectReason.UNSUPPORTED, {"local_id": 0}),
    (RejectReason.INVALID_GID, {"private": header(UNKNOWN_PEER + 1, 1, SERVER)}),
    (RejectReason.INVALID_GID, {"private": header(UNKNOWN_PEER, 1, SERVER + 1)}),
    (RejectReason.INVALID_GID, {"local_gid": 5}),
    (RejectReason.INVALID_MTU, {"mtu": 0}),
    (RejectReason.INVALID_MTU, {"mtu": 6})])
def test_invalid_requests_are_rejected_at_once(reason, changes):
    scene = Scene(1)
    scene.agent.on_datagram(request(scene.rng, UNKNOWN_PEER, **changes), UNKNOWN_PEER, UNKNOWN_PEER, scene.network.now)
    answers = [parse(data) for _, to, data in scene.network.sent if to == UNKNOWN_PEER]
    assert [(answer.kind, answer.reason) for answer in answers] == [(Attribute.REJ, reason)]
    assert not scene.requests and len(scene.agent.connections) == 1
    assert wire.MAD_BYTES == len(scene.network.sent[0][2])


def test_repeated_mra_cannot_delay_the_end():
    """The peer repeats an MRA, which asks for more time."""
    def accept(connection):
        connection.accept(OFFER, b"", scene.network.now)
        return lambda *_: None

    scene = Scene(1, on_request=accept)
    data = request(scene.rng, UNKNOWN_PEER)
    scene.agent.on_datagram(data, UNKNOWN_PEER, UNKNOWN_PEER, scene.network.now)
    theirs = parse(data).local_id
    mine = next(c.local_id for c in scene.agent.connections.values() if c.remote_id == theirs)
    late = build(Attribute.MRA, 1, local_id=theirs, remote_id=mine, answered=1, timeout=31)
    for _ in range(1000):
        scene.agent.on_datagram(late, UNKNOWN_PEER, UNKNOWN_PEER, scene.network.now)
        if mine not in scene.agent.connections:
            break
        scene.network.now += 1_000_000_000
        scene.agent.progress(scene.network.now)
    assert mine not in scene.agent.connections
    scene.check_untouched()
    scene.check_empty()
