"""Tests of paced descriptors in the transmit subsystem, beside unpaced ones."""

import os
from collections import Counter, defaultdict
from pathlib import Path

import cocotb
import pytest
from cocotb.triggers import RisingEdge, with_timeout
from cocotb.utils import get_sim_time

from weft.hdl.contract import abi
from weft.hdl.contract.abi import Reason, ReportKind
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import Report
from weft.hdl.transmit.transmit import Transmit
from weft.tb.sim.flow.simulate import SIMULATORS, elaborate, simulate
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS
from weft.tb.sim.stream.payload import receive
from weft.tb.test.decoder import decode
from weft.tb.test.hdl.pacing.pacer_bench import BURST_NS, OVERHEAD, SCALE, gap_of
from weft.tb.test.hdl.transmit.agents import BAD_KEY, QP_GENERATION, outcome_of, packets_of, random_work, refusal
from weft.tb.test.hdl.transmit.test_transmit import QPS, TransmitBench, some_works

PARAMS = preset("test")
PLAIN = {"pmtu": 3, "remote_va": 0, "opcode": 1}       # packets of 1 KiB


class PacedBench(TransmitBench):
    """The subsystem with the card's time, doorbells, and the reports as they come."""

    @classmethod
    async def start(cls, dut, pause=0.0):
        bench = await super().start(dut, pause)
        bench.events = []
        cocotb.start_soon(bench._time())
        cocotb.start_soon(bench._read_reports())
        for _ in range(200):        # the tables are cleared
            await RisingEdge(dut.clk)
        return bench

    async def _time(self):
        while True:
            self.dut.time_ns.value = int(get_sim_time("ns"))
            await RisingEdge(self.dut.clk)

    async def _read_reports(self):
        while True:
            entry = Report.from_bits(await self.reports.recv()).entry.to_bytes(64, "little")
            self.events.append(abi.REPORT_EVENT.unpack(entry))

    async def ring(self, name, layout, **fields):
        """Write a doorbell."""
        getattr(self.dut, f"registers__{name}").value = int.from_bytes(layout.pack(**fields), "little")
        strobe = getattr(self.dut, f"registers__{name}_stb")
        strobe.value = 1
        await RisingEdge(self.dut.clk)
        strobe.value = 0

    async def rate(self, qpn, gbps):
        await self.ring("rate_doorbell", abi.RATE_DOORBELL, qpn=qpn, gap=gap_of(gbps) if gbps else 0)

    async def flush(self, qpn):
        self.dut.i_flush__payload.value, self.dut.i_flush__valid.value = qpn, 1
        await RisingEdge(self.dut.clk)
        while not int(self.dut.i_flush__ready.value):
            await RisingEdge(self.dut.clk)
        self.dut.i_flush__valid.value = 0

    async def settled(self):
        """Wait until the subsystem is idle and its reports were read."""
        await with_timeout(cocotb.start_soon(self.quiet()), 200, "us")
        for _ in range(40):
            await RisingEdge(self.dut.clk)


def ends(events):
    """Return {(qpn, retransmission): PSNs} of the PACED reports."""
    found = defaultdict(list)
    for event in events:
        if event.kind == ReportKind.PACED:
            assert event.generation == QP_GENERATION and event.reason == Reason.OK
            found[event.qpn, event.retransmission].append(event.psn)
    return found


@cocotb.test()
async def paced_and_unpaced_together(dut):
    """Both rings hold descriptors of both kinds; all are retired in order, sent, and paced ones are reported."""
    bench = await PacedBench.start(dut, pause=0.2)
    rng = bench.rng
    for qpn in range(QPS):
        await bench.rate(qpn, rng.choice([0, 5, 20, 100]))
    frames, expected, entries = [], defaultdict(list), [0, 0]
    reports = 0
    for ring in (0, 1):
        for number, work in enumerate(some_works(rng, ring, 60)):
            work["sport"] = 4 * number + ring
            entries[ring] += bench.post(ring, work)
            sent, errors = outcome_of([work], qps=QPS, network=bench.network)
            frames += sent
            reports += len(errors)
            if number % 4 == 0:      # the pool holds them all
                paced = random_work(rng, qps=QPS, retransmit=ring, length_max=3000, paced=1,
                                    sport=4 * number + 2 + ring)
                entries[ring] += bench.post(ring, paced)
                frames += outcome_of([paced], qps=QPS, network=bench.network)[0]
                expected[paced["sqpn"], ring].append((paced["psn"] + len(packets_of(paced, qps=QPS))) % 2**32)
                while sum(map(len, expected.values())) - sum(map(len, ends(bench.events).values())) > 12:
                    await RisingEdge(dut.clk)
    got = await bench.frames(len(frames))
    assert Counter(got) == Counter(frames)
    await bench.settled()
    assert ends(bench.events) == expected
    assert sum(event.kind == ReportKind.TX_ERROR for event in bench.events) == reports
    assert [bench.totals["retire_send"], bench.totals["retire_retransmit"]] == entries
    for event in bench.events:
        assert (event.time_ns != 0) == (event.kind == ReportKind.PACED)
    order = [f for f in got if decode(f).sport % 4 < 2]
    for ring in (0, 1):
        assert [f for f in order if decode(f).sport % 4 == ring] == [
            f for f in frames if decode(f).sport % 4 == ring], "unpaced frames of a ring keep their order"


@cocotb.test()
async def rates_beside_unpaced_traffic(dut):
    """QPs at 1, 10 and 50 Gb/s have their rates, and never more, while an unpaced QP takes the rest of the line."""
    bench = await PacedBench.start(dut)
    rates = {1: 1, 2: 10, 3: 50}
    for qpn, rate in rates.items():
        await bench.rate(qpn, rate)
        bench.post(0, random_work(bench.rng, qps=QPS, retransmit=0, sqpn=qpn, sport=qpn, paced=1, length=1 << 21,
                                  **PLAIN))
    for _ in range(4):
        bench.post(0, random_work(bench.rng, qps=QPS, retransmit=0, sqpn=9, sport=9, length=1 << 20, **PLAIN))
    times = defaultdict(list)
    begin, duration = get_sim_time("ns"), 48_000
    while get_sim_time("ns") < begin + duration:
        frame, _ = await receive(bench.sink)
        times[decode(frame).sport].append(get_sim_time("ns"))
    for qpn, rate in rates.items():
        steady = [t for t in times[qpn] if t > begin + 4 * BURST_NS]
        distance = (1024 + OVERHEAD) * gap_of(rate) / SCALE
        spent = steady[-1] - steady[0]
        packets = len(steady) - 1
        # A packet leaves after its time; the wait is at most that of the packets before it in the path.
        waits = [t - steady[0] - k * distance for k, t in enumerate(steady)]
        cocotb.log.info("%d Gb/s: %d packets, %.4f of the rate, %.0f ns of jitter", rate, packets,
                        packets * distance / spent, max(waits) - min(waits))
        assert max(waits) - min(waits) < 800, "the distance of packets is exact but for their waits"
    share = len(times[9]) * 1024 * 8 / duration
    cocotb.log.info("unpaced: %.1f Gb/s of payload", share)
    assert share > 30


@cocotb.test()
async def rejected_qp_is_reported_once(dut):
    """A bad key discards the QP's descriptors, with one report; later ones, and other QPs, are not affected."""
    bench = await PacedBench.start(dut)
    for _ in range(3):
        bench.events.clear()
        await bench.rate(4, 0)
        await bench.rate(5, 20)
        for key in (1, BAD_KEY, 1, BAD_KEY):
            bench.post(0, random_work(bench.rng, qps=QPS, retransmit=0, sqpn=4, lkey=key, paced=1, psn=0, length=5000,
                                      **PLAIN))
        other = random_work(bench.rng, qps=QPS, retransmit=0, sqpn=5, paced=1, length=5000, psn=7, **PLAIN)
        bench.post(0, other)
        while not any(event.kind == ReportKind.TX_ERROR for event in bench.events):
            await RisingEdge(dut.clk)
        for _ in range(1500):
            await RisingEdge(dut.clk)
        errors = [event for event in bench.events if event.kind == ReportKind.TX_ERROR]
        assert [(event.qpn, event.reason) for event in errors] == [(4, Reason.BAD_KEY)]
        assert ends(bench.events) == {(4, 0): [5], (5, 0): [12]}
        bench.post(1, random_work(bench.rng, qps=QPS, retransmit=1, sqpn=4, paced=1, psn=50, length=100, **PLAIN))
        await with_timeout(cocotb.start_soon(until(dut, lambda: (4, 1) in ends(bench.events))), 20, "us")
        await with_timeout(cocotb.start_soon(until(dut, lambda: int(dut.idle.value))), 20, "us")
        while len(bench.sink):
            await receive(bench.sink)


async def until(dut, condition):
    while not condition():
        await RisingEdge(dut.clk)


@cocotb.test()
async def full_pool_and_flush(dut):
    """Descriptors beyond the pool are rejected alone; a flush leaves nothing of the QP."""
    bench = await PacedBench.start(dut)
    await bench.rate(2, 0.01)
    for _ in range(PARAMS.pace_descriptors + 3):
        bench.post(0, random_work(bench.rng, qps=QPS, retransmit=0, sqpn=2, paced=1, length=3000, **PLAIN))
    bench.post(0, random_work(bench.rng, qps=QPS, retransmit=0, sqpn=1, sport=77, length=100, **PLAIN))
    await until(dut, lambda: len(bench.events) == 3)
    assert {(event.kind, event.reason, event.qpn) for event in bench.events} == {
        (ReportKind.TX_ERROR, Reason.BAD_DESCRIPTOR, 2)}
    assert sorted(decode(f).sport == 77 for f in await bench.frames(2)) == [False, True]
    await until(dut, lambda: bench.totals["retire_send"] == PARAMS.pace_descriptors + 4)
    assert not int(dut.idle.value)
    await bench.flush(2)
    await bench.settled()
    assert len(bench.events) == 3
    await bench.rate(2, 0)
    again = random_work(bench.rng, qps=QPS, retransmit=0, sqpn=2, paced=1, length=3000, **PLAIN)
    bench.post(0, again)
    assert await bench.frames(3) == bench.outcome([again])[0]
    await bench.settled()


@cocotb.test()
async def nothing_starves(dut):
    """Beside a QP that is paced as fast as possible, one of 16 frames is unpaced."""
    bench = await PacedBench.start(dut)
    await bench.rate(2, 0)
    for qpn in (2, 1):
        bench.post(0, random_work(bench.rng, qps=QPS, retransmit=0, sqpn=qpn, sport=qpn, paced=qpn - 1,
                                  length=200 << 10, **PLAIN) | {"dst_mac": 1})
    await bench.frames(140)     # on their way before the pacer had a packet
    unpaced = sum(decode(f).sport == 1 for f in await bench.frames(96))
    assert 5 <= unpaced <= 7
    await bench.frames(400 - 140 - 96)
    await bench.settled()


@cocotb.test()
async def held_back_while_disabled(dut):
    """Nothing leaves while the card is disabled or drains; a flush needs no packet to leave."""
    bench = await PacedBench.start(dut)
    dut.enable.value = 0
    for qpn in (3, 4):
        await bench.rate(qpn, 0)
        bench.post(0, random_work(bench.rng, qps=QPS, retransmit=0, sqpn=qpn, sport=qpn, paced=1, length=3000, **PLAIN))
    for _ in range(100):
        await RisingEdge(dut.clk)
        assert not int(dut.o__valid.value)
    await bench.flush(3)
    dut.drain_request.value = 1
    await until(dut, lambda: int(dut.drain_done.value))
    dut.drain_request.value = 0
    dut.enable.value = 1
    assert [decode(f).sport for f in await bench.frames(3)] == [4] * 3
    await bench.settled()


@pytest.mark.parametrize("sim", SIMULATORS)
def test_paced_descriptors(sim):
    simulate(Transmit(PARAMS), name="transmit", cases=__file__, sim=sim,
             tests="^(?!.*(latency_of_unpaced))")


@cocotb.test()
async def latency_of_unpaced_work(dut):
    """Write the cycles from the descriptor to the first beat, for the comparison below."""
    bench = await TransmitBench.start(dut)
    taken = []
    for _ in range(3):
        work = random_work(bench.rng, qps=QPS, retransmit=0, sqpn=1, length=100, local_va=0,
                           **PLAIN)
        bench.post(0, work)
        await until(dut, lambda: int(dut.i_send__valid.value))
        began = get_sim_time("ns")
        await until(dut, lambda: int(dut.o__valid.value))
        taken.append((get_sim_time("ns") - began) / CLOCK_PERIOD_NS)
        await bench.frames(1)
        await bench.quiet()
    Path(os.environ["WEFT_RUN"], "latency").write_text(str(taken))


def test_size_of_the_pool_is_checked():
    for size, reason in ((2, "choose 0, or 4 to 32768"), (1 << 16, "choose 0"), (48, "not a power of two")):
        assert reason in refusal(lambda size=size: PARAMS.with_(pace_descriptors=size))


def test_unpaced_work_takes_no_cycle_more():
    runs = [simulate(verilog=elaborate(Transmit(params), "top"), name="transmit_latency", cases=__file__,
                     sim=SIMULATORS[0], tests="latency_of_unpaced")
            for params in (PARAMS.with_(pace_descriptors=0), PARAMS)]
    assert runs[0] != runs[1]
    assert Path(runs[0], "latency").read_text() == Path(runs[1], "latency").read_text()
