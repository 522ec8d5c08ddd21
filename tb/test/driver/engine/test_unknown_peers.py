"""Packets of unknown peers of a QP: neither the card nor the driver accepts them."""


import pytest

from weft.driver.knitting.holes import encode
from weft.driver.knitting.node import pack_block
from weft.driver.terms.enums import QPState, WROpcode
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import abi, wire
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair

Opcode, Kind = wire.Opcode, abi.ReportKind
UNKNOWN_PEER = 0x0B0B0B0B
JUMP = 1 << 12
LENGTH = 8_192


class Scene:
    """A write of the first host that does not arrive, and frames for both hosts.

    The source address of a frame is that of the peer or another one.
    """

    def __init__(self):
        self.pair = make_pair()
        self.ends = make_endpoints(self.pair, LENGTH, path_mtu=1)
        self.qps = [end.qps[0] for end in self.ends]
        self.qps[1].post_recv(RecvWR(wr_id=9))
        self.pair.links[0].drop = lambda frame: True
        wr = SendWR(1, sg=[SGE(self.ends[0].mr.buf, LENGTH, self.ends[0].mr.lkey)], opcode=WROpcode.RDMA_WRITE)
        wr.set_wr_rdma(self.ends[1].mr.rkey, self.ends[1].mr.buf)
        self.qps[0].post_send(wr)
        self.run()
        assert self.qps[0].sender.queue.in_flight

    def run(self):
        for _ in range(10):
            for context in self.pair.contexts:
                context.progress()
            self.pair.loop.run(self.pair.loop.now_ns + 1_000)

    def receive(self, host, opcode, extensions, src_ip, *, psn=0, ack_req=0, payload=b""):
        context, qp = self.pair.contexts[host], self.qps[host]
        self.pair.devices[host].card.receive(wire.build_frame(
            opcode=opcode, dst_mac=context.mac, src_mac=2, src_ip=src_ip or qp.engine.path.ip, dst_ip=context.ip,
            sport=0xC000, dest_qp=qp.qp_num, psn=psn % (1 << wire.PSN_BITS), ack_req=ack_req, payload=payload,
            extensions=extensions))
        self.run()

    def state(self, host):
        """Return the state of card and driver that a frame could change."""
        qp, card = self.qps[host], self.pair.devices[host].card
        incarnation, queue = next(iter(card.qps.values())), qp.sender.queue
        return {"window": (incarnation.window.base, incarnation.window.holes),
                "received": set(incarnation.window.received),
                "una": queue.una, "limit": queue.limit,
                "retransmits": qp.sender.counts["retransmissions"], "rsn": qp.sender.expected_rsn,
                "cum": qp.receiver.cum, "base": qp.receiver.base, "state": qp.qp_state, "sent": len(queue),
                "receives": qp.engine.receives, "reports": card.counters["reports"],
                "answers": sum(self.pair.contexts[host].counts[o.name] for o in wire.DRIVER_OPCODES)}

    def loss_report(self):
        queue = self.qps[0].sender.queue
        _, fields = encode([(queue.una, 3)])[0]
        return pack_block(next_phase=0, next_adjacent=0, next_line=0, **fields, rsn=0, qpn=self.qps[1].index,
                          generation=self.qps[1].generation)


def acknowledgement(scene, src_ip):
    queue = scene.qps[0].sender.queue
    scene.receive(0, Opcode.ACKNOWLEDGE, wire.AETH.pack(syndrome=wire.Syndrome.ACK), src_ip, psn=queue.sent_psn - 1)


def limit(scene, src_ip):
    extension = wire.LIMH.pack(limited=1, serial=1)
    scene.receive(0, Opcode.RECEIVE_LIMIT, extension, src_ip, psn=scene.qps[0].sender.queue.una)


def loss_report(scene, src_ip):
    scene.receive(0, Opcode.LOSS_REPORT, wire.RSNH.pack(), src_ip, payload=scene.loss_report())


def probe(scene, src_ip):
    scene.receive(1, Opcode.PROBE, wire.RSNH.pack(), src_ip, psn=scene.qps[1].receiver.base + 20)


def empty_write(scene, src_ip):
    scene.receive(1, Opcode.WRITE_ONLY_IMM, wire.RETH.pack() + wire.IMMDT.pack(imm=7), src_ip,
                  psn=scene.qps[1].receiver.base, ack_req=1)


def jump(scene, src_ip):
    scene.receive(1, Opcode.WRITE_ONLY, wire.RETH.pack(), src_ip, psn=scene.qps[1].receiver.base + JUMP)


def wrong_key(scene, src_ip):
    scene.receive(1, Opcode.WRITE_ONLY, wire.RETH.pack(rkey=77, dma_length=4), src_ip,
                  psn=scene.qps[1].receiver.base, payload=bytes(4))


OF_DRIVER = {acknowledgement: 0, limit: 0, loss_report: 0}
OF_CARD = {probe: 1, empty_write: 1, jump: 1, wrong_key: 1}


@pytest.mark.parametrize("frame", [*OF_DRIVER, *OF_CARD], ids=lambda frame: frame.__name__)
def test_frame_counts_from_the_peer_and_not_from_an_unknown_peer(frame):
    host = (OF_DRIVER | OF_CARD)[frame]
    honest = Scene()
    before = honest.state(host)
    frame(honest, None)
    assert honest.state(host) != before, "the frame would do nothing in any case"
    scene = Scene()
    before = scene.state(host)
    frame(scene, UNKNOWN_PEER)
    assert scene.state(host) == before
    assert not any(len(end.cq) for end in scene.ends) and scene.qps[host].qp_state is QPState.RTS
    context, card = scene.pair.contexts[host], scene.pair.devices[host].card
    assert card.counters["drop_wrong_peer"] == 1 and not card.counters["rx_raw_frames"]
    assert not context.counts["control_frames_of_strangers"]
    close_and_check(scene.pair, scene.ends)


@pytest.mark.parametrize("frame", OF_DRIVER, ids=lambda frame: frame.__name__)
def test_driver_drops_control_frames_of_unknown_peers(frame, monkeypatch):
    """No card passes such a frame on; the driver checks nevertheless."""
    scene = Scene()
    path = scene.pair.devices[0].card.receive_path
    monkeypatch.setattr(path, "_live", lambda header, index, generation: True)
    before = scene.state(0)
    frame(scene, UNKNOWN_PEER)
    assert scene.state(0) == before
    assert scene.pair.contexts[0].counts["control_frames_of_strangers"] == 1
    close_and_check(scene.pair, scene.ends)


@pytest.mark.parametrize("kind", [Kind.MESSAGE_END, Kind.PROGRESS, Kind.PROBE, Kind.ERROR, Kind.UNMATCHED])
def test_driver_drops_reports_of_unknown_peers(kind):
    """No card writes such a report; the driver checks nevertheless."""
    scene = Scene()
    qp, card = scene.qps[1], scene.pair.devices[1].card
    before = scene.state(1)
    fields = {"kind": kind, "qpn": qp.index, "generation": qp.generation, "psn": qp.receiver.base,
              "base": qp.receiver.base + 1, "reason": abi.Reason.BAD_KEY}
    card.report(abi.REPORT_EVENT.pack(**fields, src_ip=UNKNOWN_PEER))
    scene.run()
    assert scene.state(1) == before | {"reports": before["reports"] + 1}
    assert scene.pair.contexts[1].counts["reports_of_strangers"] == 1
    close_and_check(scene.pair, scene.ends)
