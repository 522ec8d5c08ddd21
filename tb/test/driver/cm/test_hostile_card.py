"""Frames of unknown peers for the general services QP of a card with a listener and a connection."""

import random

import pytest

from weft.driver.cm.card_agent import CardAgent, parse_datagram
from weft.driver.connection.agent import REQUESTS_KEPT
from weft.driver.connection.messages import Attribute, build, gid_of, header
from weft.driver.terms.enums import WCStatus
from weft.hdl.contract import wire
from weft.tb.test.driver.cm.hosts import Hosts, caller, listener
from weft.tb.test.driver.connection.test_hostile import random_message, request

SERVER_IP, CLIENT_IP, UNKNOWN_IP = 0x0A00_0001, 0x0A00_0002, 0x0A00_0063
UNKNOWN_MAC, SERVER_MAC = 0x02_0000_0000_63, 0x02_0000_0000_01
FRAMES, BYTES = 600, 64


def frame_of(data, *, src_ip=UNKNOWN_IP, opcode=wire.UD_SEND_ONLY, dest_qp=wire.GSI_QPN, qkey=wire.GSI_QKEY):
    return wire.build_frame(
        opcode=opcode, dst_mac=SERVER_MAC, src_mac=UNKNOWN_MAC, src_ip=src_ip, dst_ip=SERVER_IP, sport=0xC001,
        dest_qp=dest_qp, psn=0, extensions=wire.DETH.pack(qkey=qkey, src_qp=wire.GSI_QPN), payload=data)


def random_frame(rng, known):
    """Return a frame of an unknown peer.

    Its source address is that of the unknown peer, of the client, of the server, or random. Some frames are no
    datagrams, and some are requests that are valid except for the GID. A frame with the client's address does not
    contain the IDs of the connection: a sender that has them cannot be distinguished from the client.
    """
    source = rng.choice([UNKNOWN_IP, CLIENT_IP, SERVER_IP, rng.getrandbits(32)])
    if rng.random() < 0.1:
        data = request(rng, source, local_gid=rng.getrandbits(128))
    else:
        data = random_message(rng, [0] if source == CLIENT_IP else known)
    if rng.random() < 0.3:
        data = rng.randbytes(rng.choice([0, 1, 24, 255, 256, 257, 1000]))
    return frame_of(data, src_ip=source,
                    opcode=rng.choice([wire.UD_SEND_ONLY] * 6 + [rng.randrange(256)]),
                    dest_qp=rng.choice([wire.GSI_QPN] * 6 + [0, rng.getrandbits(24)]),
                    qkey=rng.choice([wire.GSI_QKEY] * 6 + [rng.getrandbits(32)]))


def counts_of(context):
    """Return the numbers of the objects that an unknown peer could increase."""
    agent = CardAgent.of(context.card).agent
    return {"connections": len(agent.connections), "qps": len(list(context.qps)), "mrs": len(context.mrs),
            "pages": len(context.device.memory._pages), "asked": len(context.neighbours.asked),
            "queued": len(context.engine.nic.queue), "pending": sum(len(x.pending) for x in agent.listeners.values())}


def scene(attack):
    """Check that a connection works before and after an attack.

    ``attack`` is called with the hosts, the context of the server, and the IDs of the connection.
    """
    done = []

    def server():
        with listener(backlog=8) as on, on.get_request() as cmid:
            mr = cmid.reg_msgs(BYTES)
            cmid.post_recv(mr)
            cmid.accept()
            context, agent = on.context, CardAgent.of(on.context.card).agent
            context.run_until(lambda: not context.neighbours.asked)     # address resolution of the client, for the QP
            before = counts_of(context)
            connection = cmid.identifier.connection
            attack(hosts, context, [connection.local_id, connection.remote_id, 0])
            context.run_until(lambda: len(agent.connections) == before["connections"])
            on.identifier.channel.records.clear()
            assert counts_of(context) == before
            assert cmid.get_recv_comp().status is WCStatus.SUCCESS
            done.append(True)
            cmid.disconnect()

    def client():
        with caller() as cmid:
            mr = cmid.reg_msgs(BYTES)
            cmid.connect()
            cmid.context.serve(3_000_000)
            cmid.post_send(mr)
            assert cmid.get_send_comp().status is WCStatus.SUCCESS
            cmid.wait_disconnected()

    with Hosts() as hosts:
        hosts.run(server, client)
    assert done


def test_random_datagrams(bench_seed):
    rng = random.Random(bench_seed)

    def attack(hosts, context, known):
        raw = context.counts["raw_frames"]
        for n in range(FRAMES):
            hosts.devices[0].card.receive(random_frame(rng, known))
            if n % 16 == 0:
                context.serve(2_000)
        agent = CardAgent.of(context.card).agent
        assert context.counts["raw_frames"] - raw > FRAMES // 4 and agent.counts["unknown"]
        assert sum(agent.counts[f"stray_{kind.name}"] for kind in Attribute) and agent.counts["refused_INVALID_GID"]

    scene(attack)


def test_a_flood_of_requests():
    """More requests than the backlog, from hosts that do not exist; the established connection continues to work."""
    rng = random.Random(1)

    def attack(hosts, context, known):
        agent = CardAgent.of(context.card).agent
        for n in range(FRAMES):
            address = UNKNOWN_IP + n % 50
            data = request(rng, address, private=header(address, 1, SERVER_IP), remote_gid=gid_of(SERVER_IP))
            hosts.devices[0].card.receive(frame_of(data, src_ip=address))
            if n % 16 == 0:
                context.serve(2_000)
                assert len(agent.connections) <= 1 + REQUESTS_KEPT
        assert agent.counts["backlog_full"] > FRAMES // 2
        assert len(context.neighbours.asked) <= 8

    scene(attack)


@pytest.mark.parametrize("spoilt", ["opcode", "dest_qp", "qkey", "length", "padding"])
def test_other_frames_are_ignored(spoilt):
    data = build(Attribute.RTU, 1)
    assert parse_datagram(frame_of(data)).data == data
    bad = {"opcode": frame_of(data, opcode=0x65), "dest_qp": frame_of(data, dest_qp=2), "qkey": frame_of(data, qkey=1),
           "length": frame_of(data[:-4]), "padding": frame_of(data[:-1])}
    assert parse_datagram(bad[spoilt]) is None
