"""Tests of the counts of marked packets, with the functional card as the model."""

import random
from collections import Counter
from types import SimpleNamespace

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl.contract import abi
from weft.hdl.contract.abi import MARK_STEP_NS
from weft.hdl.contract.params import preset
from weft.hdl.receive.marks import STEP_WIDTH, Marks
from weft.model.functional import window
from weft.model.functional.card import FunctionalCard
from weft.model.functional.parse import RxHeader
from weft.model.functional.report_merge import ReportMerge
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock

QPS = 32
WRAP_NS = MARK_STEP_NS << STEP_WIDTH


class Model:
    """A functional card that gets marked packets only."""

    def __init__(self):
        self.card = FunctionalCard(None, SimpleNamespace(now_ns=0), None, None)
        self.card.rings = SimpleNamespace(half_taken=lambda ring: self.half)
        self.half = False

    def create(self, index):
        self.card.qps[index] = SimpleNamespace(marked=0, reported_step=None,
                                               matcher=SimpleNamespace(qpn=index, generation=0))

    def mark(self, index, now_ns, alone, half):
        """Return the count of a report, or None."""
        self.card.loop.now_ns, self.half = now_ns, half
        judged = SimpleNamespace(verdict=window.ACCEPT, progress=not alone, psn=0, base=0, holes=0)
        merge = ReportMerge(None)
        self.card.receive_path._note_mark(RxHeader("DATA", ce=1), self.card.qps[index], judged, merge)
        entries = [abi.REPORT_EVENT.unpack(entry) for _, entry in merge.drain()]
        assert all((entry.kind, entry.qpn) == (abi.ReportKind.MARKED, index) for entry in entries)
        return entries[0].marked if entries else None


class Bench:
    """Random packets, with the time, and QPs that are created."""

    def __init__(self, dut, rng):
        self.dut, self.rng, self.model = dut, rng, Model()
        self.now, self.cases, self.fresh = 1 << 20, Counter(), set()

    async def cycle(self):
        self.dut.time_ns.value = self.now
        await RisingEdge(self.dut.clk)
        self.now += 4

    async def create(self, index, *, busy=False):
        """Create a QP; with ``busy``, packets of others come in the same cycles."""
        self.model.create(index)
        self.fresh.add(index)
        self.dut.created.value, self.dut.created_index.value = 1, index
        others = [other for other in self.model.card.qps if other != index]
        if busy and others:
            await self.mark(self.rng.choice(others))
            self.dut.created.value = 0
            await self.mark(self.rng.choice(others))
        else:
            await self.cycle()
            self.dut.created.value = 0
        for _ in range(2):
            await self.cycle()

    async def mark(self, index, *, alone=True, half=False):
        """Pass a packet with a mark; compare the decision two cycles after it."""
        dut = self.dut
        dut.index.value, dut.marked.value = index | self.rng.getrandbits(24) // QPS * QPS, 1
        dut.alone.value, dut.half.value = alone, half
        now = self.now
        await self.cycle()
        assert not int(dut.busy.value)
        dut.marked.value, dut.alone.value, dut.half.value = 0, self.rng.getrandbits(1), self.rng.getrandbits(1)
        dut.index.value, dut.created.value = self.rng.getrandbits(24), 0
        for stage in range(2):
            await self.cycle()
            assert int(dut.count_rx_marked.value) == (stage == 0) and int(dut.busy.value)
        expected = self.model.mark(index, now, alone, half)
        assert int(dut.report.value) == (expected is not None), (index, now, expected)
        if expected is not None:
            assert int(dut.count.value) == expected
        self.cases["half" if half else "not alone" if not alone else "within" if expected is None else "reported"] += 1
        if expected == 1 and index in self.fresh:
            self.cases["first of a new QP"] += 1
        self.fresh.discard(index)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def each_qp_is_reported_once_in_an_interval(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    bench = Bench(dut, rng)
    for index in range(QPS):
        await bench.create(index)
    for interval in (0, 1, 255, 256, 257, 1_000, 50_000, (1 << 20) - 1):
        dut.interval_ns.value = interval | rng.getrandbits(12) << 20      # the rest of the register has no effect
        bench.model.card.registers["cnp_interval_ns"] = interval
        bench.now += WRAP_NS // 8         # the model has no wrap
        for _ in range(2):
            await bench.cycle()
        for _ in range(400):
            index = rng.choice([rng.randrange(QPS), rng.randrange(3)])
            if rng.random() < 0.05:
                await bench.create(index, busy=rng.random() < 0.5)
            else:
                await bench.mark(index, alone=rng.random() < 0.8, half=rng.random() < 0.2)
            if rng.random() < 0.3:
                bench.now += rng.choice([4, MARK_STEP_NS, interval // 4 * 4, rng.randrange(1 << 12) * 4])
                await bench.cycle()
    cocotb.log.info("cases: %s", dict(bench.cases))
    assert min(bench.cases[case] for case in ("half", "not alone", "reported", "within", "first of a new QP")) >= 20


@cocotb.test(timeout_time=100, timeout_unit="us")
async def the_time_wraps(dut):
    """After the wrap a QP waits for one interval at most."""
    await start_clock(dut)
    bench = Bench(dut, random.Random(bench_seed()))
    dut.interval_ns.value = 1_000
    await bench.create(5)
    reports = []
    for pause_ns in (0, WRAP_NS + 300, 2_000, WRAP_NS // 2, 3 * WRAP_NS // 4):
        bench.now += pause_ns
        await bench.cycle()
        dut.index.value, dut.marked.value, dut.alone.value, dut.half.value = 5, 1, 1, 0
        await bench.cycle()
        dut.marked.value = 0
        for _ in range(2):
            await bench.cycle()
        reports.append(int(dut.report.value))
    assert reports == [1, 0, 1, 1, 1]


@pytest.mark.parametrize("sim", SIMULATORS)
def test_marks_are_counted_and_reported(sim):
    simulate(Marks(preset("test").with_(qps=QPS)), name="receive_marks", cases=__file__, sim=sim)
