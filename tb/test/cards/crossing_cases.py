"""Special cases with two RTL cards: each loses, duplicates or delays certain frames, and the data arrives."""

import random
from collections import Counter
from dataclasses import dataclass, field

import cocotb
from cocotb.task import bridge
from cocotb.triggers import gather
from cocotb.utils import get_sim_time

from weft.driver.application.file_transfer import Endpoint
from weft.driver.terms.enums import MTU, AccessFlag, SendFlags, WCOpcode, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.mr import MR
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.hdl.contract import abi, wire
from weft.model.impairments import FrameKind, LinkConfig
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.judge.blocks import missing_blocks
from weft.tb.sim.judge.scoreboard import laps
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.hard_block import COMPLETION_HEADERS
from weft.tb.sim.pcie.host import HostConfig

RTT_US = 6
WINDOW = 16               # work requests in flight per QP
SILENCE_NS = 3_000_000    # a crossing fails after this time without a completion
SERVICE_NS = 1_000
PROBE_NS = 25_000
TIMEOUT_EXPONENT = 6      # 262 µs
LOSSY = LinkConfig(delay_ns=RTT_US * 500, loss=0.08)
CLEAN = LinkConfig(delay_ns=RTT_US * 500)
ROUGH = LinkConfig(delay_ns=RTT_US * 500, loss=0.05, duplicate=0.05, reorder=0.05, corrupt=0.04)
ROUGH_DISTANCE = 64       # in packets: covers a microsecond of the smallest frames


@dataclass(frozen=True)
class Case:
    """Messages to transfer, and the properties of cards and links.

    Attributes
    ----------
    messages : dict of side to list of int
        Bytes of the messages a side writes on each of its QPs; both sides use the same QPs.
    psn : int, optional
        First PSN of every QP, of both sides; random without it.
    """

    messages: dict
    qps: int = 1
    pmtu: int = 256
    psn: int | None = None
    there: LinkConfig = CLEAN
    back: LinkConfig = CLEAN
    host: HostConfig = field(default_factory=lambda: HostConfig(read_latency_ns=500))
    mac_idle: float = 0.0
    rough: bool = False
    driver: dict = field(default_factory=dict)

    def context_config(self):
        distance = ROUGH_DISTANCE if self.rough else 1
        return ContextConfig(**{"reorder_distance": distance, "retransmit_slack": distance,
                                "probe_timeout_ns": PROBE_NS, **self.driver})


class Crossing:
    """Runs a :class:`Case`: connects, writes, compares, closes.

    Parameters
    ----------
    dut
    case : Case
    prepare : callable(Crossing), optional
        Called before data is sent, for instance to plant losses with :meth:`drop`.

    Attributes
    ----------
    pair : RtlPair
    dropped : Counter
        Number of planted losses, by name.
    counters : dict of side
        After the end.
    sums : dict of side to Counter
        Counts of the driver's senders and receivers, after the end.
    low_water : dict of side
        Smallest number of free blocks of the knitting buffer.
    """

    def __init__(self, dut, case, prepare=None):
        self.case, self.prepare, self.rng = case, prepare, random.Random(bench_seed())
        config = EnvConfig(a_to_b=case.there, b_to_a=case.back, host=case.host, mac_idle=case.mac_idle)
        self.pair = RtlPair(dut, config, case.context_config(), seed=bench_seed())
        self.endpoints, self.sources, self.data, self.done = {}, {}, {}, set()
        self.dropped, self.counters, self.sums, self.low_water = Counter(), {}, {}, {}

    def drop(self, direction, name, chosen):
        """Lose the frames of ``direction`` for which ``chosen(frame, kind)`` is true."""
        def predicate(frame, kind):
            lost = chosen(frame, kind)
            self.dropped[name] += bool(lost)
            return lost

        self.pair.env.link(direction).impairments.drop_when(predicate)

    async def run(self):
        case, pair = self.case, self.pair
        await pair.start()
        await gather(*(bridge(self._open)(side) for side in case.messages))
        await pair.connect(self.endpoints, path_mtu=MTU[f"MTU_{case.pmtu}"], timeout=TIMEOUT_EXPONENT)
        if self.prepare:
            self.prepare(self)
        for side in case.messages:
            await bridge(self._post_receives)(side)
        await gather(*(bridge(self._serve)(side) for side in case.messages))
        for side, peer in (("a", "b"), ("b", "a")):
            wanted = self.data[side]
            assert self.endpoints[peer].mr.read(len(wanted), 0) == wanted, f"bytes from {side} differ"
        self.laps = {side: laps(context) for side, context in pair.contexts.items()}
        for side, context in pair.contexts.items():
            self.sums[side] = sum((qp.sender.counts + qp.receiver.counts for qp in self.endpoints[side].qps), Counter())
            self.low_water[side] = context.knitting.low_water
        self.counters, blocks, complaints = await pair.close()
        assert not complaints, complaints
        assert not any(map(missing_blocks, blocks.values())), blocks
        for side, direction in (("a", "a_to_b"), ("b", "b_to_a")):
            destroyed = pair.env.link(direction).counters.destroyed
            again, lost = self.counters[side]["tx_retransmissions"], \
                destroyed[FrameKind.DATA] + destroyed[FrameKind.RETX]
            peer = "ab".replace(side, "")
            spans = self.sums[peer]["coarsened"]
            seen = {name: self.counters[peer][name] for name in (
                "holes", "nodes_residue", "rx_late_originals", "drop_duplicate", "drop_stale_rsn", "drop_buffer_full")}
            # A list at its limit of cached nodes retires its head for the next node, even if a packet for the head is
            # delayed on the link: that packet comes too late, and is retransmitted.
            late = seen["drop_stale_rsn"] if case.rough else 0
            assert lost <= again <= lost + spans + late, (
                f"{side}: {lost} packets lost, {again} sent again, {spans} in spans; its peer counted {seen}")
        return self

    # The following methods run in the thread of a side.

    def _open(self, side):
        case, context, peer = self.case, self.pair.contexts[side], "ab".replace(side, "")
        inbound = sum(case.messages[peer]) * case.qps
        outbound = self.data[side] = self.rng.randbytes(sum(case.messages[side]) * case.qps)
        psns = None if case.psn is None else [case.psn] * case.qps
        endpoint = self.endpoints[side] = Endpoint(context, inbound, qps=case.qps, psns=psns, window=WINDOW)
        self.sources[side] = MR(endpoint.pd, max(len(outbound), 1), AccessFlag.LOCAL_WRITE)
        self.sources[side].write(outbound)

    def _post_receives(self, side):
        if self.case.messages["ab".replace(side, "")]:
            for qp in self.endpoints[side].qps:
                qp.post_recv(RecvWR(wr_id=qp.qp_num))

    def _requests(self, side, number):
        """Return the work requests of one QP; the last one carries the immediate."""
        case, source, offer = self.case, self.sources[side], self.endpoints["ab".replace(side, "")].offer
        lengths = case.messages[side]
        at = number * sum(lengths)
        for index, length in enumerate(lengths):
            last = index == len(lengths) - 1
            wr = SendWR(wr_id=index, sg=[SGE(source.buf + at, length, source.lkey)], imm_data=number,
                        opcode=WROpcode.RDMA_WRITE_WITH_IMM if last else WROpcode.RDMA_WRITE,
                        send_flags=SendFlags.SIGNALED)
            wr.set_wr_rdma(offer.rkey, offer.va + at)
            yield wr
            at += length

    def _serve(self, side):
        """Run the application: post all writes, wait for all, then serve until the other side is done as well."""
        case, endpoint, context = self.case, self.endpoints[side], self.pair.contexts[side]
        numbers = {qp.qp_num: qp for qp in endpoint.qps}
        todo = {qp: self._requests(side, i) for i, qp in enumerate(endpoint.qps)}
        open_sends = dict.fromkeys(endpoint.qps, 0)
        completed = Counter()
        receives = case.qps if case.messages["ab".replace(side, "")] else 0
        sends = len(case.messages[side]) * case.qps
        try:
            while sends or receives:
                for qp in endpoint.qps:
                    while open_sends[qp] < WINDOW and (wr := next(todo[qp], None)):
                        qp.post_send(wr)
                        open_sends[qp] += 1
                for wc in endpoint.cq.wait(16, SILENCE_NS):
                    assert wc.status is WCStatus.SUCCESS, wc
                    if wc.opcode is WCOpcode.RECV_RDMA_WITH_IMM:
                        assert wc.imm_data == endpoint.qps.index(numbers[wc.qp_num])
                        receives -= 1
                    else:
                        assert wc.wr_id == completed[wc.qp_num], "completions out of order"
                        completed[wc.qp_num] += 1
                        open_sends[numbers[wc.qp_num]] -= 1
                        sends -= 1
        finally:
            self.done.add(side)
        while self.done < {"a", "b"}:
            context.progress()
            context.wait(SERVICE_NS)
        context.progress()


def psn_of(frame):
    """Return the 24-bit PSN of a RoCEv2 frame."""
    return wire.BTH.unpack(frame[wire.BTH_OFFSET:]).psn


def nth(kinds, *numbers):
    """Return a function that chooses the frames of ``kinds`` with these numbers, counted from 0."""
    count = iter(range(1 << 30))
    return lambda _frame, kind: kind in kinds and next(count) in numbers


def times(kinds, first_psn, offset, number):
    """Return a function that chooses packet ``first_psn + offset`` the first ``number`` times it is sent."""
    left = iter(range(number))
    wanted = (first_psn + offset) % (1 << 24)
    return lambda frame, kind: kind in kinds and psn_of(frame) == wanted and next(left, None) is not None


DATA, RETX, ACK, PROBE = (frozenset({kind}) for kind in (
    FrameKind.DATA, FrameKind.RETX, FrameKind.ACK, FrameKind.PROBE))
PACKETS = DATA | RETX
LOSS_REPORT = frozenset({FrameKind.LOSS_REPORT})


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def short(dut):
    """A few packets, the third of which is lost; short enough for Icarus."""
    fast = LinkConfig(delay_ns=300)
    case = Case({"a": [2500], "b": []}, there=fast, back=fast, host=HostConfig(read_latency_ns=200),
                driver={"ring_log2": 4, "extent_bytes": 4096, "node_age_ns": 200})
    crossing = await Crossing(dut, case, lambda c: c.drop("a_to_b", "third", nth(DATA, 2))).run()
    crossing.pair.scoreboards["b"].require("loss")
    assert crossing.counters["a"]["tx_retransmissions"] == crossing.dropped["third"] == 1


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def psn_wraps(dut):
    """PSNs wrap at 2^24 with holes before and after, on two QPs and in both directions."""
    case = Case({"a": [4000, 9000], "b": [12_000]}, qps=2, psn=(1 << 24) - 20, there=LOSSY, back=LOSSY)

    def plant(crossing):
        for direction in ("a_to_b", "b_to_a"):
            for offset in (18, 19, 20, 21):
                crossing.drop(direction, direction, times(DATA, case.psn, offset, 1))

    crossing = await Crossing(dut, case, plant).run()
    for board in crossing.pair.scoreboards.values():
        board.require("loss", "psn wrap")
    assert min(crossing.dropped.values()) >= 4


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def psn_passes_half(dut):
    """PSNs pass 2^23, where the sign of a 24-bit difference to zero changes."""
    case = Case({"a": [14_000], "b": []}, psn=(1 << 23) - 20, there=LOSSY, back=LOSSY)
    edge = times(DATA, case.psn, 20, 1)
    crossing = await Crossing(dut, case, lambda c: c.drop("a_to_b", "edge", edge)).run()
    crossing.pair.scoreboards["b"].require("loss", "psn half")


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def rings_wrap(dut):
    """With small rings, both directions, and more messages than ring entries, every ring of both cards wraps."""
    sizes = {abi.Ring.SEND: 3, abi.Ring.RETRANSMIT: 2, abi.Ring.COMMAND: 1, abi.Ring.NIC_TX: 3, abi.Ring.RESPONSE: 1,
             abi.Ring.META_REPORT: 4, abi.Ring.NIC_RX: 5}
    messages = [700] * 120
    case = Case({"a": messages, "b": messages}, qps=2, there=LOSSY, back=LOSSY, driver={"ring_log2": sizes})
    crossing = await Crossing(dut, case).run()
    for side, rings in crossing.laps.items():
        assert all(count > 2 for count in rings.values()), f"{side}: {rings}"
        crossing.pair.scoreboards[side].require("loss", "report ring wrap")


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def second_and_third_loss(dut):
    """The same packets are lost two, three and four times, also as retransmissions."""
    case = Case({"a": [12_000], "b": []}, psn=1000)

    def plant(crossing):
        for offset, number in ((5, 2), (6, 3), (20, 4), (46, 3)):
            crossing.drop("a_to_b", offset, times(PACKETS, case.psn, offset, number))

    crossing = await Crossing(dut, case, plant).run()
    assert crossing.dropped == {5: 2, 6: 3, 20: 4, 46: 3}
    crossing.pair.scoreboards["b"].require("loss", "second loss", "third loss")


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def tail_and_probe_lost(dut):
    """The last packets of the only message are lost, and so are the first probes."""
    case = Case({"a": [4000], "b": []}, psn=7)

    def plant(crossing):
        crossing.drop("a_to_b", "tail", nth(DATA, 15, 16))    # the last one carries the immediate
        crossing.drop("a_to_b", "probe", nth(PROBE, 0, 1))

    crossing = await Crossing(dut, case, plant).run()
    assert crossing.dropped == {"tail": 2, "probe": 2}
    crossing.pair.scoreboards["b"].require("loss", "probe")


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def acknowledgements_lost(dut):
    """All acknowledgements are lost for a while."""
    case = Case({"a": [900] * 12, "b": []}, there=LOSSY)
    crossing = Crossing(dut, case)
    began = None

    def early(_frame, kind):
        nonlocal began
        if kind is FrameKind.ACK and began is None:
            began = get_sim_time("ns")
        return kind is FrameKind.ACK and get_sim_time("ns") - began < 3 * PROBE_NS

    crossing.prepare = lambda c: c.drop("b_to_a", "ack", early)
    await crossing.run()
    assert crossing.dropped["ack"] >= 2
    crossing.pair.scoreboards["b"].require("probe")


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def loss_reports_lost(dut):
    """The first loss report, a middle one and the last one are lost, some of them twice."""
    case = Case({"a": [40_000], "b": []}, psn=0, driver={"node_age_ns": 100})

    def plant(crossing):
        crossing.drop("a_to_b", "data", nth(DATA, 3, 40, 41, 80, 120, 150))
        crossing.drop("b_to_a", "report", nth(LOSS_REPORT, 0, 2, 3, 5))

    crossing = await Crossing(dut, case, plant).run()
    assert crossing.dropped["data"] == 6 and crossing.dropped["report"] >= 3


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def odd_sizes(dut):
    """Messages of no bytes, of one byte, and of one byte more or less than a packet, in both directions at once."""
    lengths = [0, 1, 255, 256, 257, 0, 511, 513, 3, 0]
    case = Case({"a": lengths, "b": lengths[::-1]}, qps=2, there=LOSSY, back=LOSSY)
    await Crossing(dut, case, lambda c: c.drop("a_to_b", "empty", nth(DATA, 0, 6))).run()


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def empty_file(dut):
    """A single write of no bytes."""
    crossing = await Crossing(dut, Case({"a": [0], "b": []})).run()
    assert crossing.counters["b"]["rx_packets"] == 1 and not crossing.counters["b"]["rx_bytes"]


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def rough_in_both_directions(dut):
    """Loss, duplicates, reordering and corruption in both directions, with small tables and a large one."""
    messages = [6000, 12_345, 20_000]
    case = Case({"a": messages, "b": messages}, qps=4, there=ROUGH, back=ROUGH, rough=True)
    crossing = await Crossing(dut, case).run()
    for board in crossing.pair.scoreboards.values():
        board.require("loss", "reorder", "duplicate", "corruption")


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def completions_split(dut):
    """A fast host splits every completion at 64 bytes: outstanding reads use most completion headers of the hard block.

    They never exceed them; the model complains of a completion without header.
    """
    host, most = HostConfig(read_latency_ns=400, split_completions=True), []

    def watch(crossing):
        block = crossing.pair.env.sides["a"].hard_block
        deliver = block.rc_queue.put_nowait
        block.rc_queue.put_nowait = lambda tlp: (most.append(block.rx_buf_cplh_fc_count), deliver(tlp))

    await Crossing(dut, Case({"a": [60_000], "b": []}, pmtu=4096, host=host), watch).run()
    assert COMPLETION_HEADERS / 4 < max(most) <= COMPLETION_HEADERS, max(most)


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def back_pressure(dut):
    """Hosts that stall all four PCIe streams, split every completion and answer late, and a MAC that pauses."""
    host = HostConfig(read_latency_ns=600, read_jitter=0.8, read_tail=0.03, split_completions=True, stall=0.3,
                      max_payload_bytes=128, max_read_bytes=256)
    case = Case({"a": [9000, 7000], "b": [15_000]}, qps=2, pmtu=1024, there=LOSSY, back=LOSSY, host=host, mac_idle=0.3)
    crossing = await Crossing(dut, case, lambda c: c.drop("a_to_b", "data", nth(DATA, 2, 5))).run()
    crossing.pair.scoreboards["b"].require("loss")
