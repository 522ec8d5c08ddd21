"""Congestion signals between two drivers: ECT(0), counted marks, notifications, and the effect of forged ones."""

import itertools
import random

import pytest

from weft.driver.send.flow_limit import CNP_INTERVAL_NS
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract import abi, wire
from weft.model.card.host import TimedDevice
from weft.model.fabric.frame.header import marked
from weft.model.functional.host import LinkConfig
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.sim.hostile.fuzzed_frames import IP_AT, edit, seal
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.operation_pair import OperationPair
from weft.tb.test import decoder
from weft.tb.test.driver.faulty_link import Scenario, opcode_of
from weft.tb.verify.bench.register_traffic import RegisterTraffic

SEED = drawn_seed(__name__)
LENGTH, INTERVAL_NS, LEAST_NS = 1 << 19, CNP_INTERVAL_NS, CNP_INTERVAL_NS // 2
UNKNOWN_PEER, RING_LOG2 = 0x0B0B0B0B, 8
CARDS = pytest.mark.parametrize("options", [{}, {"device_type": TimedDevice, "preset": "test"}],
                                ids=["functional", "timed"])


class Marked(Scenario):
    """Two hosts whose link marks each data packet with a probability; it also loses some.

    ``notified`` has the times of the notifications that the algorithm got. One before the first round trip comes again
    with the algorithm that is made then.
    """

    def __init__(self, share=0.0, loss=0.0, congestion="dcqcn", length=LENGTH, **options):
        print(f"WEFT_SEED={SEED}")
        config = ContextConfig(congestion=congestion, ring_log2=RING_LOG2)
        pair = make_pair(config, forward=LinkConfig(delay_ns=2_000), backward=LinkConfig(delay_ns=2_000), **options)
        OperationPair.__init__(self, length, pair=pair)
        self.requester, self.me, self.peer = 0, *self.hosts
        self.length, self.share, self.loss = length, share, loss
        self.rng, self.sent, self.answers, self.marks, self.notified = random.Random(SEED), [], [], [], []
        self.on_the_way(0, self._forward)
        self.on_the_way(1, self._back)
        if (flow := self.me.qp.sender.flow) is not None:
            take = flow.algorithm.on_cnp
            flow._make = lambda delay_ns, make=flow._make: self._watched(make(delay_ns))
            flow.algorithm.on_cnp = lambda now: (self.notified.append(now), take(now))

    def _watched(self, algorithm):
        take = algorithm.on_cnp
        algorithm.on_cnp = lambda now: (self.notified.append(now), take(now))
        return algorithm

    def _forward(self, frame):
        frame = bytes(frame)
        self.sent.append(frame)
        if opcode_of(frame) not in wire.DATA_OPCODES:
            return frame
        if self.rng.random() < self.loss:
            return None
        if self.rng.random() < self.share:
            self.marks.append((self.pair.now_ns(), frame))
            return marked(frame)
        return frame

    def _back(self, frame):
        self.answers.append((self.pair.now_ns(), bytes(frame)))
        return frame

    def write(self, times=1):
        """Write the memory of the requester to the peer's, and compare."""
        data = self.rng.randbytes(self.length)
        self.me.mr.write(data)
        for _ in range(times):
            self.ask(WROpcode.RDMA_WRITE, self.length)
        assert self.statuses(0, times) == [WCStatus.SUCCESS] * times
        assert self.peer.mr.read(self.length, 0) == data

    @property
    def cnps(self):
        return [(at, frame) for at, frame in self.answers if opcode_of(frame) == wire.Opcode.CNP]

    def forged(self, **changes):
        """Return a CNP to the requester, by default its peer's."""
        me, peer = self.pair.contexts
        return wire.build_frame(**{
            "opcode": wire.Opcode.CNP, "dst_mac": me.mac, "src_mac": peer.mac, "src_ip": peer.ip, "dst_ip": me.ip,
            "sport": 0xC000, "dest_qp": self.me.qp.qp_num, "psn": 0, "extensions": wire.CNPH.pack()} | changes)

    def receive(self, *frames):
        for frame in frames:
            self.pair.devices[0].card.receive(frame)


@CARDS
def test_marks_return_as_notifications(options):
    scene = Marked(share=0.3, loss=0.01, **options)
    begin = scene.pair.now_ns()
    scene.write(4)
    scene.settle()
    counters, counts = scene.peer.context.statistics(), scene.peer.context.counts
    packets = [decoder.decode(frame) for _, frame in scene.cnps]
    assert counters["rx_marked"] == len(scene.marks) > 100 and len(packets) == counts["CNP"] > 3
    assert scene.pair.contexts[0].counts["cnps_received"] == counts["CNP"] == len(set(scene.notified))
    assert len(scene.notified) <= counts["CNP"] + 1
    for packet in packets:
        assert packet.dest_qp == scene.me.qp.qp_num and packet.tos == 48 << 2 and not (packet.migreq or packet.psn)
    times = [at for at, _ in scene.cnps]
    assert all(later - earlier > INTERVAL_NS - 3_000 for earlier, later in itertools.pairwise(times))
    assert len(times) <= (scene.pair.now_ns() - begin) / INTERVAL_NS + 1
    assert scene.me.qp.sender.flow.algorithm.rate < 100e9
    assert scene.me.qp.sender.counts["retransmissions"] > 0
    scene.close()


def test_each_packet_has_its_class():
    """Data and its retransmissions are ECT(0) if the algorithm reacts to marks; control frames have their own class."""
    for congestion, ecn in (("dcqcn", wire.ECT0), ("swift", wire.NOT_ECT), ("none", wire.NOT_ECT)):
        scene = Marked(loss=0.02, congestion=congestion)
        scene.write()
        seen = {}
        for frame in scene.sent + [frame for _, frame in scene.answers]:
            if decoder.is_roce(frame):
                packet = decoder.decode(frame)
                seen.setdefault(packet.opcode, set()).add(packet.tos)
        probes = {wire.Opcode.PROBE} if congestion != "none" else set()
        assert {wire.Opcode.RETX_WRITE, wire.Opcode.ACKNOWLEDGE, wire.Opcode.LOSS_REPORT, *probes} <= set(seen)
        for opcode, classes in seen.items():
            data = opcode in wire.DATA_OPCODES
            assert classes == {ecn if data else 0 if opcode == wire.Opcode.PROBE else 48 << 2}, (opcode, classes)
        scene.close()


def test_a_mark_is_reported_without_congestion_control():
    """The algorithm of the peer may react, whatever this end uses for its data."""
    scene = Marked(share=1.0, congestion="none")
    scene.write()
    assert scene.cnps and scene.pair.contexts[0].counts["cnps_received"] and not scene.notified
    scene.close()


def test_control_frames_are_pushed_between_qps_that_react_to_marks():
    """Others share a doorbell with what comes in the same round; a notification is pushed in any case."""
    pushed = {}
    for congestion in ("dcqcn", "none"):
        scene = Marked(share=0.3, congestion=congestion, device_type=TimedDevice, preset="test")
        traffic, window = RegisterTraffic(scene.pair.devices[1]), abi.PUSH_BASE + abi.PUSH_PAGE_BYTES
        scene.write(4)
        windows = sum(traffic.writes[hex(window + k * abi.BLOCK_BYTES)] for k in range(abi.PUSH_WINDOWS))
        assert len(scene.cnps) > 3 and len(scene.answers) > len(scene.cnps)
        pushed[congestion] = windows / len(scene.answers), windows / len(scene.cnps)
        scene.close()
    assert pushed["dcqcn"][0] > 1.5, "two entries of nearly every frame"
    assert 0 < pushed["none"][1] <= 2, "notifications only"


def test_packets_that_are_dropped_do_not_count():
    """Marked duplicates, packets of unknown peers, and packets with a wrong ICRC or key."""
    scene = Marked(share=0.0)
    scene.write()
    frames = [frame for frame in scene.sent if opcode_of(frame) in wire.DATA_OPCODES]
    card = scene.pair.devices[1].card
    for frame in frames[:20]:
        ce = marked(frame)
        for wrong in (ce, seal(edit(ce, wire.IPV4, IP_AT, src=UNKNOWN_PEER)), ce[:-1] + bytes([ce[-1] ^ 1]),
                      seal(edit(ce, wire.RETH, wire.RETH_OFFSET, rkey=1))):
            card.receive(wrong)
    scene.settle(20_000)
    assert not card.counters["rx_marked"] and not scene.cnps
    assert not scene.peer.context.engine.reports.counts["MARKED"]
    scene.close()


def test_strangers_cannot_slow_a_qp():
    scene = Marked()
    scene.write()
    rate, frames = scene.me.qp.sender.flow.algorithm.rate, 0
    right = scene.forged()
    wrong = {"peer": scene.forged(src_ip=UNKNOWN_PEER), "qpn": scene.forged(dest_qp=scene.me.qp.qp_num ^ 1 << 20),
             "no qp": scene.forged(dest_qp=9), "icrc": right[:-1] + bytes([right[-1] ^ 1]),
             "short": scene.forged(extensions=b""), "partition": seal(edit(right, wire.BTH, wire.BTH_OFFSET, pkey=7))}
    for _ in range(100):
        scene.receive(*wrong.values())
        frames += len(wrong)
        scene.settle(2_000)
    assert not scene.notified and scene.me.qp.sender.flow.algorithm.rate == rate
    counters = scene.me.context.statistics()
    assert {counters[f"drop_{why}"] for why in ("wrong_peer", "bad_icrc", "bad_header")} == {100}
    assert counters["drop_stale_generation"] + counters["drop_unknown_qp"] == 200
    scene.receive(right)
    scene.settle(2_000)
    assert len(scene.notified) == 1 and scene.me.qp.sender.flow.algorithm.rate == rate / 2
    scene.close()


@CARDS
def test_a_flood_of_the_peer_is_bounded_and_the_rate_recovers(options):
    scene = Marked(length=1 << 16, **options)
    scene.write()
    flow = scene.me.qp.sender.flow
    begin = scene.pair.now_ns()
    for _ in range(100):
        scene.receive(*[scene.forged()] * 20)
        scene.settle(10_000)
    lasted = scene.pair.now_ns() - begin
    assert 10 < len(scene.notified) <= lasted / LEAST_NS + 1
    assert all(later - earlier >= LEAST_NS for earlier, later in itertools.pairwise(scene.notified))
    least = flow.algorithm.rate
    assert flow.algorithm.settings.least_mbps * 1e6 <= least < 1e9
    assert flow.end - flow.heard == 1, "one packet is always allowed"
    begin = scene.pair.now_ns()
    scene.write()
    assert scene.pair.now_ns() - begin > 1e6, "the card has the rate"
    for _ in range(40):
        scene.write()
    assert flow.algorithm.rate > 4 * least and len(scene.notified) <= lasted / LEAST_NS + 1
    scene.close()


def test_the_reports_end_while_half_of_the_ring_is_taken():
    """A driver that does not poll gets few of them, and loses no other report."""
    scene = Marked(share=1.0, congestion="none")
    card, depth = scene.pair.devices[1].card, 1 << RING_LOG2
    card.registers["cnp_interval_ns"] = 0
    for _ in range(4):
        scene.ask(WROpcode.RDMA_WRITE, LENGTH)
    while card.counters["rx_marked"] < 4 * LENGTH // 1024:
        scene.me.context.progress()
        scene.pair.advance(500)
    assert depth // 2 - 4 <= card.rings.space(abi.Ring.META_REPORT) <= depth // 2, "further ones end messages"
    assert scene.statuses(0, 4) == [WCStatus.SUCCESS] * 4
    scene.close()


def test_reports_that_wait_for_a_command_are_bounded():
    scene = Marked()
    worker = scene.peer.context.engine.reports
    worker.COLLECTED_MAX = 16
    qp = scene.peer.qp
    ring = scene.pair.devices[1].card.rings
    for number in range(100):
        ring.put(abi.Ring.META_REPORT, abi.REPORT_EVENT.pack(
            kind=abi.ReportKind.MARKED, qpn=qp.index, generation=qp.generation, marked=number))
    worker.collect()
    assert len(worker.collected) <= 100 and worker.counts["errors_dropped"] == 100 - len(worker.collected)
    scene.close()
