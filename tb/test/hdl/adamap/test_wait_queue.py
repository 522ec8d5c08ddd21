"""Test of the match queue against a list of headers: every output, in every cycle."""

import random
from collections import Counter
from dataclasses import dataclass

import cocotb
import pytest
from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl.adamap.match.wait_queue import MatchItem, WaitQueue
from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock

PARAMS = preset("test").with_(qps=1 << 24, match_queue=16)
WIDTH, PLACES = PARAMS.qpn_width, PARAMS.match_queue
CYCLES, TURN = 12000, 100        # cycles with the same QPs and the same rates
KINDS = ("insert", "remove", "put_back", "")


@dataclass(eq=False)
class Waiting:
    """Header in the queue; ``place`` is its entry, once it was picked."""

    qpn: int
    item: int
    awake: bool
    busy: bool = False
    place: int | None = None
    again: bool = False


class Driver:
    """Random user of the queue, as its ports allow, with a list of the headers in arrival order."""

    def __init__(self, dut, rng):
        self.dut, self.rng, self.seen = dut, rng, Counter()
        self.line, self.gone = [], []       # headers, and the QPs of those that left in the last cycles
        self.qpns, self.weights = [0], (1, 1, 1, 1)
        self.plan, self.plan_qpn, self.planned = "", 0, None      # of the next cycle
        self.shown = self.asked = None      # asked: (QP, header or None)
        self.woken = self.picked = self.count = None

    def turn(self):
        """Choose rates, and QPs that differ in one bit."""
        rng = self.rng
        base = rng.choice([0, rng.getrandbits(WIDTH)])
        self.qpns = [base, *(base ^ 1 << bit for bit in rng.sample(range(WIDTH), 3))]
        self.weights = rng.choice([(9, 2, 2, 1), (2, 9, 2, 1), (4, 4, 4, 1), (1, 1, 1, 5)])

    def qpn(self):
        """Return a QP: one that waits, one that left, or another."""
        waiting = [self.rng.choice(self.line).qpn] * 2 if self.line else []
        return self.rng.choice([*self.qpns, *self.gone[-2:], *waiting])

    def of(self, qpn):
        return [header for header in self.line if header.qpn == qpn]

    def drive(self):
        """Drive all inputs for a cycle; return what happens in it."""
        dut, rng = self.dut, self.rng
        kind, qpn, header = self.plan, self.plan_qpn, self.planned
        if kind == "insert" and len(self.line) == PLACES:
            kind = ""
            self.seen["full"] += 1
        self.item = MatchItem.const({"qpn": qpn, "psn": rng.getrandbits(32), "rsn": rng.getrandbits(24)}).as_bits()
        self.insert_awake, self.sleep = rng.random() < 0.5, rng.random() < 0.7
        for name in KINDS[:3]:
            getattr(dut, f"{name}_en").value = kind == name
        dut.insert_awake.value, dut.sleep.value, dut.item.value = self.insert_awake, self.sleep, self.item
        self.leaves = header if kind == "remove" else None
        self.wakes = self.qpn() if rng.random() < 0.2 else None
        dut.wake_stb.value = self.wakes is not None
        dut.wake_qpn.value = self.qpn() if self.wakes is None else self.wakes
        self.pick, self.counts = rng.random() < 0.6, self.qpn()
        dut.pick_en.value, dut.count_en.value, dut.count_qpn.value = self.pick, 1, self.counts
        self.waits = [self.qpn(), self.qpn()]
        for k, waits in enumerate(self.waits):
            getattr(dut, f"waiting_qpn__{k}").value = waits
        self._ask()
        self._plan(header if kind in ("remove", "put_back") else None)
        return kind, qpn, header

    def _ask(self):
        """Show a header, and query one that was shown before, or a QP."""
        dut, rng = self.dut, self.rng
        placed = [header for header in self.line if header.place is not None]
        self.show = rng.choice(placed) if placed and rng.random() < 0.4 else None
        dut.show_en.value = self.show is not None
        dut.show_place.value = self.show.place if self.show else rng.randrange(PLACES)
        queued = self.shown in self.line and self.shown is not self.leaves and rng.random() < 0.6
        self.query = None
        if rng.random() < 0.3:
            self.query = ((self.shown.qpn if rng.random() < 0.8 else self.qpn(), self.shown) if queued
                          else (self.qpn(), None))
        dut.query_en.value = self.query is not None
        dut.query_qpn.value = self.query[0] if self.query else self.qpn()
        dut.query_queued.value = self.query[1] is not None if self.query else queued

    def _plan(self, ends):
        """Choose what happens in the next cycle; the attempt ``ends`` in this one."""
        dut, rng = self.dut, self.rng
        tried = [header for header in self.line if header.busy and header.place is not None and header is not ends]
        self.plan, = rng.choices(KINDS, self.weights)
        self.planned = rng.choice(tried) if tried and self.plan in ("remove", "put_back") else None
        if self.planned is None and self.plan != "insert":
            self.plan = ""
        self.plan_qpn = self.planned.qpn if self.planned else self.qpn()
        dut.place_next.value = self.planned.place if self.planned else rng.randrange(PLACES)
        dut.qpn_next.value = self.plan_qpn

    def check(self, kind, qpn):
        """Compare the outputs of a cycle."""
        dut, line, seen = self.dut, self.line, self.seen
        may = [header for header in line if header.awake and not header.busy]
        assert int(dut.offered.value) == bool(may)
        assert int(dut.empty.value) == (not line)
        for k, waits in enumerate(self.waits):
            assert int(dut.waiting.value) >> k & 1 == bool(self.of(waits)), (k, hex(waits))
            seen["left the queue"] += waits in self.gone and not self.of(waits)
        if self.picked:
            place = int(dut.picked_place.value)
            assert int(dut.picked.value) == self.picked.item
            assert all(header.place != place for header in line if header is not self.picked)
            self.picked.place = place
            seen["again"] += self.picked.again
            seen["overtakes"] += any(not header.busy for header in line[:line.index(self.picked)])
        if self.count is not None:
            assert int(dut.count.value) == self.count
            seen["count", min(self.count, 5)] += 1
        if self.asked:
            self._check_older(*self.asked, comes=kind == "insert" and qpn == self.asked[0])
        return may

    def _check_older(self, qpn, header, comes):
        """Compare the answer to the last query, unless its header leaves; ``comes``: a header of its QP enters."""
        if header is not None and header is self.leaves:
            return
        before = self.line[:self.line.index(header)] if header else self.line
        older = any(other.qpn == qpn and other is not self.leaves for other in before) or (comes and header is None)
        assert int(self.dut.older.value) == older
        self.seen["older", header is not None, older] += 1

    def step(self, kind, qpn, header, may):
        """Apply what happens in a cycle."""
        mates, line = self.of(qpn), self.line
        self.picked = may[0] if self.pick and may else None
        self.count = len(self.of(self.counts))
        if kind == "put_back":
            header.busy, header.again = False, True
            for mate in mates if self.sleep else ():
                mate.awake = False
        for woken in self.of(self.woken):
            woken.awake = True
        if self.picked:
            self.picked.busy = True
        if kind == "insert":
            awake = any(mate.awake for mate in mates) if mates else self.insert_awake
            line.append(Waiting(qpn, self.item, awake or self.woken == qpn))
        if self.show:
            self.shown = self.show
        if self.query:
            self.asked = self.query
        if self.leaves:
            line.remove(header)
            self.gone = [*self.gone[-5:], header.qpn]
            if self.shown is header:
                self.shown = None
            if self.asked and self.asked[1] is header:
                self.asked = None
        self.woken = self.wakes


@cocotb.test()
async def every_output(dut):
    await start_clock(dut)
    driver = Driver(dut, random.Random(bench_seed()))
    for cycle in range(CYCLES):
        if cycle % TURN == 0:
            driver.turn()
        kind, qpn, header = driver.drive()
        await ReadOnly()
        driver.step(kind, qpn, header, driver.check(kind, qpn))
        await RisingEdge(dut.clk)
    dut._log.info("%s", dict(driver.seen))
    wanted = ["full", "again", "overtakes", "left the queue", *(("count", k) for k in range(6)),
              *(("older", queued, older) for queued in (False, True) for older in (False, True))]
    assert all(driver.seen[case] > 30 for case in wanted), driver.seen


@pytest.mark.parametrize("sim", SIMULATORS)
def test_headers_leave_in_order(sim):
    simulate(WaitQueue(PARAMS), name="adamap_wait_queue", cases=__file__, sim=sim)
