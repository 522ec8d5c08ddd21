"""Tests of the transmit subsystem: frames byte for byte, order, priority, rejections, throughput."""

import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge, with_timeout
from cocotb.utils import get_sim_time

from weft.hdl.contract import abi, wire
from weft.hdl.contract.abi import PAGE_4K, Reason
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import Report
from weft.hdl.transmit.transmit import Transmit
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, elaborate
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS, start_clock
from weft.tb.sim.stream.payload import beats, receive
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.decoder import decode, is_roce
from weft.tb.test.hdl.transmit.agents import (
    BAD_KEY,
    NO_QP,
    POISON_KEY,
    Host,
    entries_of,
    frame_of,
    outcome_of,
    packets_of,
    random_inline,
    random_work,
    refusal,
    run,
)

PARAMS = preset("test")
QPS = PARAMS.qps
COUNTS = ("count_tx_packets", "count_tx_retransmissions", "count_tx_bytes", "count_tx_raw_frames", "retire_send",
          "retire_retransmit", "drop__stb")


class TransmitBench:
    """The subsystem with its environment."""

    def __init__(self, dut, pause, seed=0):
        self.dut, self.rng = dut, random.Random(bench_seed() + seed)
        self.host = Host(dut, pause=pause, rng=self.rng)
        self.rings = [StreamSource(dut, p, dut.clk, pause=pause, rng=self.rng) for p in ("i_send", "i_retransmit")]
        self.raw = StreamSource(dut, "i_raw", dut.clk, pause=pause, rng=self.rng)
        self.sink = StreamSink(dut, "o", dut.clk, pause=pause, rng=self.rng)
        self.reports = StreamSink(dut, "o_report", dut.clk, pause=pause, rng=self.rng)
        self.network = self.rng.getrandbits(48), self.rng.getrandbits(32)
        dut.network__mac.value, dut.network__ip.value = self.network
        self.totals, self.refused = dict.fromkeys(COUNTS, 0), []
        cocotb.start_soon(self._count())

    @classmethod
    async def start(cls, dut, pause=0.0):
        await start_clock(dut)
        dut.enable.value = 1
        return cls(dut, pause)

    async def _count(self):
        ports = {name: getattr(self.dut, name) for name in COUNTS}
        while True:
            await RisingEdge(self.dut.clk)
            for name, port in ports.items():
                self.totals[name] += int(port.value)
            if int(self.dut.drop__stb.value):
                self.refused.append(Reason(int(self.dut.drop__reason.value)))

    def post(self, ring, work):
        """Post a descriptor; return the number of its ring entries."""
        entries = entries_of(work, self.rng)
        for entry in entries:
            self.rings[ring].send_nowait(entry)
        return len(entries)

    def outcome(self, works):
        """Return frames and error reports of one ring's descriptors."""
        return outcome_of(works, qps=QPS, network=self.network)

    async def frames(self, count):
        got = []
        for _ in range(count):
            data, error = await with_timeout(receive(self.sink), 200, "us")
            assert not error
            got.append(data)
        return got

    async def cycles(self, beats):
        """Return the cycles from the first to the last of the next ``beats`` beats."""
        before = self.sink.received
        while self.sink.received == before:
            await RisingEdge(self.dut.clk)
        began = get_sim_time("ns")
        while self.sink.received < before + beats:
            await RisingEdge(self.dut.clk)
        return (get_sim_time("ns") - began) / CLOCK_PERIOD_NS + 1

    async def quiet(self):
        """Wait until the subsystem is idle; check that no unexpected output is left."""
        while not int(self.dut.idle.value):
            await RisingEdge(self.dut.clk)
        for _ in range(3):
            await RisingEdge(self.dut.clk)
        assert not len(self.sink) and not len(self.reports)


def some_works(rng, ring, count):
    """Return descriptors of every kind, invalid ones among them; `sport` is the number of the ring."""
    kinds = ["key", "poison", "poison", "qp", "opcode", "pmtu", "long", "lost", "other", "sqpn", *["page"] * 6,
             *["inline"] * 8, "inline qp"]
    kinds += ["good"] * (count - len(kinds))
    rng.shuffle(kinds)
    for number, kind in enumerate(kinds):
        work = random_work(rng, qps=QPS, retransmit=ring, length_max=2500, sport=2 * number + ring)
        if kind in ("long", "lost", "other", "inline", "inline qp"):
            work = random_inline(rng, qps=QPS) | {"retransmit": ring, "sport": 2 * number + ring}
        rest = rng.randbytes(rng.randint(abi.INLINE_HEAD_BYTES + 1, abi.INLINE_MAX))
        some = rng.randint(1, 2500)
        work |= {"key": {"lkey": BAD_KEY, "length": some}, "poison": {"lkey": POISON_KEY, "length": some},
                 "qp": {"sqpn": NO_QP}, "opcode": {"opcode": rng.choice([0, 4, 15])},
                 "pmtu": {"pmtu": rng.choice([0, 6, 7])},
                 "page": {"local_va": (work["local_va"] | PAGE_4K - 1) - rng.randrange(200), "length": some + 200},
                 "long": {"length": rng.choice([abi.INLINE_MAX + 1, abi.CHUNK_MAX])}, "inline qp": {"sqpn": NO_QP},
                 **{lost: {"payload": rest, "length": len(rest), "lost": lost} for lost in ("lost", "other")},
                 "sqpn": {"sqpn": QPS + rng.getrandbits(20)}}.get(kind, {})
        yield work


@cocotb.test()
async def everything_at_once(dut):
    bench = await TransmitBench.start(dut, pause=0.25)
    rng = bench.rng
    works = [list(some_works(rng, ring, 40)) for ring in (0, 1)]
    raws = [rng.randbytes(length) for length in (*range(14, 78), 1500)]     # the last beats have any length
    rng.shuffle(raws)
    broken = rng.randbytes(200)
    entries = [sum([bench.post(ring, work) for work in works[ring]]) for ring in (0, 1)]
    for raw in [*raws[:5], None, *raws[5:]]:
        for beat in beats(raw or broken, error=int(raw is None), unused=rng.randbytes(1)):
            bench.raw.send_nowait(beat)
    expected = [bench.outcome(w) for w in works]
    got = await bench.frames(sum(len(e[0]) for e in expected) + len(raws))

    roce = [f for f in got if is_roce(f)]
    for ring in (0, 1):
        assert [f for f in roce if decode(f).sport % 2 == ring] == expected[ring][0]
    assert [f for f in got if not is_roce(f)] == [r.ljust(60, b"\0") for r in raws]

    reports = []
    for _ in range(sum(len(e[1]) for e in expected)):
        reports.append(Report.from_bits(await with_timeout(bench.reports.recv(), 50, "us")).entry.to_bytes(64,
                                                                                                           "little"))
    for ring in (0, 1):
        assert [r for r in reports if abi.REPORT_EVENT.unpack(r).retransmission == ring] == expected[ring][1]
    await bench.quiet()
    reasons = [abi.REPORT_EVENT.unpack(report).reason for report in reports]
    assert set(reasons) == {
        Reason.BAD_DESCRIPTOR, Reason.BAD_KEY, Reason.UNKNOWN_QP, Reason.DMA_ERROR}, "every refusal occurred"
    assert bench.host.crossings > 5
    assert sorted(bench.refused) == sorted(reasons)
    assert bench.totals == {
        "count_tx_packets": len(roce), "count_tx_retransmissions": len(expected[1][0]),
        "count_tx_bytes": sum(len(decode(f).payload) for f in roce), "count_tx_raw_frames": len(raws),
        "retire_send": entries[0], "retire_retransmit": entries[1], "drop__stb": len(reports)}
    assert min(entries) > 40


@cocotb.test()
async def retransmissions_first(dut):
    """A retransmission waits for packets whose payload is already requested, and for no others."""
    bench = await TransmitBench.start(dut)
    works = [random_work(bench.rng, qps=QPS, retransmit=0, pmtu=1, remote_va=0, length=256 * 120, opcode=1, sport=ring)
             for ring in (0, 1)]
    works[1]["length"] = 256 * 8
    bench.post(0, works[0])
    await bench.frames(20)
    bench.post(1, works[1])
    rest = await bench.frames(100 + 8)
    order = [decode(f).sport for f in rest]
    first = order.index(1)
    assert order[first:first + 8] == [1] * 8, "retransmissions are not interleaved with new work"
    assert first <= PARAMS.bulk_tags + 40, "new work overtook a waiting retransmission"
    assert order.count(0) == 100 and first < 100


@cocotb.test()
async def nothing_starves(dut):
    """Raw and data frames share the wire frame by frame."""
    bench = await TransmitBench.start(dut)
    work = random_work(bench.rng, qps=QPS, retransmit=0, pmtu=3, remote_va=0, length=1024 * 30, opcode=1)
    bench.post(0, work)
    for _ in range(30):
        for beat in beats(bytes(1000)):
            bench.raw.send_nowait(beat)
    got = [is_roce(f) for f in await bench.frames(60)]
    for kind in (False, True):
        places = [i for i, k in enumerate(got) if k == kind]
        gaps = [b - a for a, b in zip(places, places[1:], strict=False)]
        middle = gaps[3:-3]
        assert max(middle) <= 3, got


@cocotb.test()
async def disabled_sends_nothing(dut):
    bench = await TransmitBench.start(dut)
    dut.enable.value = 0
    works = [random_work(bench.rng, qps=QPS, retransmit=0, pmtu=3, length=3000) for _ in range(2)]
    bench.post(0, works[0])
    for beat in beats(bytes(100)):
        bench.raw.send_nowait(beat)
    for _ in range(60):
        await RisingEdge(dut.clk)
        assert not int(dut.o__valid.value)
    dut.drain_request.value = 1
    dut.enable.value = 1
    assert len((await bench.frames(1))[0]) == 100, "raw frames do not wait for a drain"
    while not int(dut.drain_done.value):
        await RisingEdge(dut.clk)
    assert not len(bench.sink)
    dut.drain_request.value = 0
    assert await bench.frames(len(packets_of(works[0], qps=QPS))) == bench.outcome(works[:1])[0]
    await bench.quiet()


@cocotb.test()
async def full_rate(dut):
    """From the first to the last beat no cycle is empty, whatever the PMTU."""
    bench = await TransmitBench.start(dut)
    for pmtu, packets in ((5, 6), (3, 20), (1, 40)):
        size = wire.PMTUS[pmtu]
        for va in (0, 37):  # aligned, and with each payload crossing a page at some offset
            work = random_work(bench.rng, qps=QPS, retransmit=0, pmtu=pmtu, remote_va=0, local_va=va, opcode=1,
                               length=size * packets)
            expected = bench.outcome([work])[0]
            beats = sum(-(-len(f) // 64) for f in expected)
            bench.post(0, work)
            cycles = await bench.cycles(beats)
            assert await bench.frames(packets) == expected
            cocotb.log.info("PMTU %d: %d frames of %d beats in %d cycles", size, packets, beats // packets, cycles)
            assert cycles <= beats + 1
            await bench.quiet()


@cocotb.test()
async def full_rate_of_inline_payload(dut):
    """One beat per cycle, and one cycle for each INLINE_DATA entry; host memory is not read."""
    bench = await TransmitBench.start(dut)
    packets = 60
    for length in (1, abi.INLINE_HEAD_BYTES, abi.INLINE_HEAD_BYTES + 1, abi.INLINE_MAX):
        works = [random_inline(bench.rng, qps=QPS, retransmit=0, opcode=1, length=length,
                               payload=bench.rng.randbytes(length), sqpn=0) for _ in range(packets)]
        expected = bench.outcome(works)[0]
        entries = sum([bench.post(0, work) for work in works])
        beats = sum(-(-len(f) // 64) for f in expected)
        cycles = await bench.cycles(beats)
        assert await bench.frames(packets) == expected
        cocotb.log.info("%d bytes: %d frames in %d cycles", length, packets, cycles)
        assert cycles <= beats + entries - packets + 1
        await bench.quiet()
    assert not bench.host.reads


@cocotb.test()
async def inline_payload_beyond_the_buffer(dut):
    """After a packet that waits for host memory, inline data exceeds its buffer: later packets wait, none is lost."""
    bench = await TransmitBench.start(dut)
    works = [random_work(bench.rng, qps=QPS, retransmit=0, pmtu=5, remote_va=0, local_va=0, length=100, opcode=1),
             *[random_inline(bench.rng, qps=QPS, retransmit=0, sqpn=0) for _ in range(300)]]
    bench.host.payload.pause = 1.0
    for work in works:
        bench.post(0, work)
    for _ in range(1000):
        await RisingEdge(dut.clk)
    assert not bench.sink.received and not int(dut.i_send__ready.value)
    bench.host.payload.pause = 0.0
    expected = bench.outcome(works)[0]
    assert await bench.frames(len(expected)) == expected
    await bench.quiet()


@cocotb.test()
async def rejected_descriptor_ends_at_once(dut):
    """Segmentation of 16 MiB stops at once when the first packet is rejected, and when a later one is."""
    bench = await TransmitBench.start(dut, pause=0.2)
    rng, key, whole = bench.rng, 0x7777, 9
    bench.host.ends[key] = (1 << 40) + whole * 256
    huge = {"pmtu": 1, "remote_va": 0, "opcode": 1, "ack_req": 0, "length": abi.CHUNK_MAX}
    kinds = [{"lkey": BAD_KEY, "psn": 100}, {"sqpn": NO_QP, "psn": 200},
             {"lkey": key, "local_va": 1 << 40, "psn": 300}]
    expected, reports = [[], []], [[], []]
    for ring in (0, 1):
        for changes in rng.choices(kinds, k=3) + kinds:
            work = random_work(rng, qps=QPS, retransmit=ring, sport=ring, **huge) | changes
            sent = whole if work["lkey"] == key else 0
            expected[ring] += [frame_of(p, bench.network)
                               for p in packets_of(work | {"length": 256 * sent}, qps=QPS)[:sent]]
            reports[ring].append(work["psn"] + sent)
            bench.post(ring, work)
            for _ in range(rng.randrange(4)):   # of one packet, some without payload
                good = random_work(rng, qps=QPS, retransmit=ring, sport=ring, pmtu=5, remote_va=0,
                                   length=rng.choice([0, 0, 70]))
                expected[ring] += bench.outcome([good])[0]
                bench.post(ring, good)
    got = await bench.frames(sum(map(len, expected)))
    for ring in (0, 1):
        assert [f for f in got if decode(f).sport == ring] == expected[ring]
    seen = [[], []]
    for _ in range(sum(map(len, reports))):
        report = abi.REPORT_EVENT.unpack(Report.from_bits(await with_timeout(bench.reports.recv(), 20, "us"))
                                         .entry.to_bytes(64, "little"))
        seen[report.retransmission].append(report.psn)
    assert seen == reports
    await with_timeout(cocotb.start_soon(bench.quiet()), 20, "us")
    assert bench.totals["drop__stb"] == 12
    assert bench.host.translations < 1000


@cocotb.test()
async def packets_after_a_rejected_one_are_not_sent(dut):
    """A descriptor begins before its MR: its later packets pass the check, and are neither read nor sent."""
    bench = await TransmitBench.start(dut, pause=0.2)
    rng, key = bench.rng, 0x7777
    bench.host.begins[key] = 1 << 40
    expected, reports = [[], []], 0
    for ring in (0, 1):
        for _ in range(12):
            before = rng.choice([1, 2, 3])      # packets before the MR
            work = random_work(rng, qps=QPS, retransmit=ring, sport=ring) | {
                "pmtu": 1, "remote_va": 0, "opcode": 1, "ack_req": 0, "lkey": key, "psn": 100,
                "length": 256 * (before + rng.choice([1, 2, 20])), "local_va": (1 << 40) - 256 * before}
            bench.post(ring, work)
            reports += 1
            good = random_work(rng, qps=QPS, retransmit=ring, sport=ring, length_max=2500)
            expected[ring] += bench.outcome([good])[0]
            bench.post(ring, good)
    got = await bench.frames(sum(map(len, expected)))
    for ring in (0, 1):
        assert [f for f in got if decode(f).sport == ring] == expected[ring]
    for _ in range(reports):
        await with_timeout(bench.reports.recv(), 20, "us")
    await with_timeout(cocotb.start_soon(bench.quiet()), 20, "us")


@pytest.mark.parametrize("sim", SIMULATORS)
def test_transmit_subsystem(sim):
    run(Transmit(PARAMS), name="transmit", cases=__file__, sim=sim)


def test_card_without_a_pacer():
    """The same, at the same rates."""
    run(Transmit(PARAMS.with_(pace_descriptors=0)), name="transmit_without_pacer", cases=__file__, sim=SIMULATORS[0])


def test_card_without_inline_payload_rejects_it():
    """It needs no logic for inline data: the subsystem is smaller."""
    sizes = [len(elaborate(Transmit(PARAMS.with_(inline_bytes=n)), "top")) for n in (0, abi.INLINE_MAX)]
    assert sizes[0] < sizes[1]
    assert "inline_bytes" in refusal(lambda: PARAMS.with_(inline_bytes=48))


def test_too_small_buffer_is_rejected():
    assert "too small" in refusal(lambda: Transmit(PARAMS.with_(tx_buffer_beats=64)))
