"""Tests of drop reports: one report for each QP until all reports are consumed, then another one."""

import random
from collections import Counter

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl.contract.params import preset
from weft.hdl.receive.drop_reports import OUTSTANDING_WIDTH, DropReports
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock

QPS = 128
MOST = (1 << OUTSTANDING_WIDTH) - 1      # reports between the block and the ring
SLACK = 4                           # cycles after which the block knows that all reports are consumed


class Bench:
    """Dropped packets, the path of reports to the ring, and its driver.

    Attributes
    ----------
    asking, writing, reading, filling : float
        Chance per cycle that a packet is dropped, that a report reaches the ring, that the driver reads all reports,
        and
        that half of the ring is in use.
    """

    def __init__(self, dut, rng):
        self.dut, self.rng = dut, rng
        self.asking, self.writing, self.reading, self.filling = 0.4, 0.5, 0.1, 0.0
        self.indices = range(QPS)
        self.asked = None               # (index, half of the ring in use) of the cycle before
        self.reported = set()               # QPs reported since all reports were consumed
        self.outstanding_reports, self.unread, self.written = 0, 0, 0
        self.clear = range(QPS - 1)     # cycles in which the bits of the memory are cleared; one is over
        self.cycle = 0
        self.cases = Counter()

    async def run(self, cycles):
        for _ in range(cycles):
            await self.step(self.rng.choice(self.indices) if self.rng.random() < self.asking else None)

    async def step(self, index=None):
        """Pass a cycle with a dropped packet of QP ``index``; then one without."""
        dut = self.dut
        for ask in (index, None) if index is not None else (None,):
            half = self.rng.random() < self.filling
            dut.dropped.value, dut.reports__half.value = ask is not None, half
            if ask is not None:
                dut.index.value = ask | self.rng.getrandbits(24) // QPS * QPS     # with the generation in the high bits
            self.arrive()
            await RisingEdge(dut.clk)
            self.look()
            self.asked = None if ask is None else (ask, half)
            self.cycle += 1

    def arrive(self):
        """Move reports to the ring, and read them."""
        if self.rng.random() < self.reading:
            self.unread = 0
        self.written = int(self.outstanding_reports > 0 and self.rng.random() < self.writing)
        self.outstanding_reports -= self.written
        self.unread += self.written
        self.dut.reports__written.value, self.dut.reports__unread.value = self.written, self.unread > 0

    def look(self):
        """Compare the block's decision on the previous packet with the permitted ones."""
        report, coalesced = int(self.dut.report.value), int(self.dut.count_reports_coalesced.value)
        assert report + coalesced == (self.asked is not None)
        if self.asked:
            index, half = self.asked
            whys = {"reported before": index in self.reported, "half": half,
                    "full": self.outstanding_reports + self.written == MOST,
                    "clearing": self.cycle in self.clear}
            held = [why for why, holds in whys.items() if holds]
            if report:
                assert not held, f"QP {index} is reported in spite of {held}"
                self.reported.add(index)
                self.outstanding_reports += 1
                self.cases["reported"] += 1
            elif len(held) == 1:
                self.cases[held[0]] += 1
            elif not held:
                assert self.cycle < self.clear.stop + SLACK, f"QP {index} is not reported"
        if self.reported and not self.outstanding_reports + self.written + self.unread:
            self.reported.clear()
            self.clear = range(self.cycle + 1, self.cycle + 1 + QPS)

    async def settle(self):
        """Wait until all reports are consumed and all bits cleared."""
        self.asking, self.writing, self.reading, self.filling = 0.0, 1.0, 1.0, 0.0
        while self.reported or self.cycle < self.clear.stop + SLACK:
            await self.run(1)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def each_qp_is_reported_once(dut):
    rng = random.Random(bench_seed())
    for _ in range(2):                      # the second time after a reset with reports outstanding
        clock = await start_clock(dut)
        bench = Bench(dut, rng)
        await bench.run(QPS)
        bench.indices, bench.reading, bench.writing = [0, QPS - 1, *rng.sample(range(QPS), 6)], 0.3, 0.1
        await bench.run(1000)
        await bench.settle()
        bench.indices = range(QPS)
        bench.asking, bench.reading, bench.filling = 0.6, 0.0, 0.5
        await bench.run(200)
        await bench.settle()
        bench.writing = 0.0                             # reports do not reach the ring: more than can be counted
        for index in rng.sample(range(QPS), QPS):
            await bench.step(index)
        assert len(bench.reported) == MOST
        await bench.settle()
        for index in bench.indices:                     # each is reported again
            await bench.step(index)
        assert len(bench.reported) == QPS
        assert min(bench.cases[case] for case in ("reported", "reported before", "half", "full",
                                                  "clearing")) >= 20, bench.cases
        cocotb.log.info("cases: %s", dict(bench.cases))
        clock.cancel()


@pytest.mark.parametrize("sim", SIMULATORS)
def test_drops_are_reported_once(sim):
    simulate(DropReports(preset("test").with_(qps=QPS)), name="receive_refusals", cases=__file__, sim=sim)
