"""Reports of dropped packets: the driver gets them, and they never delay other traffic."""

import random

from weft.driver.terms.enums import WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import abi, wire
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair

Opcode, Ring = wire.Opcode, abi.Ring
LENGTH, FLOOD, SEED = 8_192, 500, 1
REPORTS_LOG2 = 4


class Scene:
    """An honest QP, and two QPs of the second host that receive frames forged in the name of their peer."""

    def __init__(self):
        self.pair = make_pair(ContextConfig(ring_log2={Ring.META_REPORT: REPORTS_LOG2}), seed=SEED)
        self.ends = make_endpoints(self.pair, LENGTH, path_mtu=1)
        self.cq = CQ(self.pair.contexts[1], 64)
        self.victims = [QP(self.ends[1].pd, rc_init_attr(self.cq)) for _ in range(2)]
        for qp in self.victims:
            qp.connect(self.ends[0].qps[0].connection, path_mtu=1)
        self.card = self.pair.devices[1].card
        self.context = self.pair.contexts[1]

    def receive(self, qp, opcode=Opcode.WRITE_ONLY, extensions=None, payload=bytes(4), **changes):
        """Receive a frame with the source address of the QP's peer, by default with an invalid key."""
        context = self.context
        self.card.receive(wire.build_frame(**{
            "opcode": opcode, "dst_mac": context.mac, "src_mac": 2, "src_ip": qp.engine.path.ip, "dst_ip": context.ip,
            "sport": 0xC000, "dest_qp": qp.qp_num, "psn": (qp.attr.rq_psn - 9) % (1 << wire.PSN_BITS),
            "payload": payload,
            "extensions": wire.RETH.pack(rkey=77, dma_length=4) if extensions is None else extensions, **changes}))

    def reported(self):
        """Return the number of reports in the ring that were not read."""
        rings = self.card.rings
        return rings.prod[Ring.META_REPORT] - rings.cons[Ring.META_REPORT]

    def write(self):
        """Execute an honest write."""
        me, you = self.ends
        data = random.Random(SEED).randbytes(LENGTH)
        me.mr.write(data)
        wr = SendWR(5, WROpcode.RDMA_WRITE, sg=[SGE(me.mr.buf, LENGTH, me.mr.lkey)])
        wr.set_wr_rdma(you.mr.rkey, you.mr.buf)
        me.qps[0].post_send(wr)
        self.run(lambda: len(me.cq))
        assert [wc.wr_id for wc in me.cq.take(4)[1]] == [5] and you.mr.read(LENGTH, 0) == data

    def run(self, condition=lambda: False, steps=200):
        for _ in range(steps):
            for context in self.pair.contexts:
                context.progress()
            self.pair.loop.run(self.pair.loop.now_ns + 1_000)
            if condition():
                return

    def close(self):
        for qp in self.victims:
            qp.close()
        self.cq.close()
        close_and_check(self.pair, self.ends)


def test_flood_of_dropped_packets_is_reported_once_per_qp():
    """The card reports drops of a QP again only after the driver has read the last report.

    Drops of other QPs are reported nevertheless.
    """
    scene = Scene()
    one, other = scene.victims
    coalesced = 0
    for _ in range(3):
        before = scene.reported()
        for _ in range(FLOOD):
            scene.receive(one)
        scene.receive(other)
        coalesced += FLOOD - 1
        assert scene.reported() == before + 2
        assert scene.card.counters["reports_coalesced"] == coalesced and not scene.card.backlog
        scene.write()
    assert scene.card.counters["drop_bad_key"] == 3 * (FLOOD + 1)
    assert scene.context.engine.reports.counts["ERROR"] == 6
    scene.close()


def test_dropped_packets_use_at_most_half_of_the_report_ring():
    scene = Scene()
    card = scene.card
    for _ in range(1 << REPORTS_LOG2 - 1):
        card.report(abi.REPORT_EVENT.pack(kind=abi.ReportKind.PROGRESS, qpn=1))
    scene.receive(scene.victims[0])
    assert card.counters["reports_coalesced"] == 1 and scene.reported() == 1 << REPORTS_LOG2 - 1
    scene.run(steps=3)
    scene.receive(scene.victims[0])
    assert card.counters["reports_coalesced"] == 1 and scene.reported() == 1
    scene.run(steps=3)
    assert scene.reported() == 0, "the card learns at once that its driver has read of it"
    scene.close()


def test_raw_frames_leave_space_for_acknowledgements_of_honest_qps():
    scene = Scene()
    card, rings = scene.card, scene.card.rings
    slots = rings.space(Ring.NIC_RX)
    arp = b"\xff" * 6 + bytes(6) + wire.ETHERTYPE_ARP.to_bytes(2, "big") + bytes(46)
    for _ in range(FLOOD):
        card.receive(arp)
    assert card.counters["rx_raw_frames"] == slots // 2
    assert card.counters["drop_nic_ring_full"] == FLOOD - slots // 2
    ack = {"opcode": Opcode.ACKNOWLEDGE, "extensions": wire.AETH.pack(syndrome=wire.Syndrome.ACK), "payload": b""}
    for _ in range(slots):
        scene.receive(scene.victims[0], **ack)
    assert not rings.space(Ring.NIC_RX) and card.counters["rx_raw_frames"] == slots
    assert card.counters["drop_nic_ring_full"] == FLOOD
    scene.run(steps=10)
    for changes in ({"src_ip": 0x0B0B0B0B}, {"dest_qp": scene.victims[0].qp_num ^ 1 << 20}):
        for _ in range(FLOOD):
            scene.receive(scene.victims[0], **ack | changes)
    assert card.counters["rx_raw_frames"] == slots, "one of them reached the driver"
    assert card.counters["drop_wrong_peer"] == card.counters["drop_stale_generation"] == FLOOD
    scene.write()
    scene.close()
