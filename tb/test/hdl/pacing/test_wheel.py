"""Tests of the timing wheel against a model: every QP leaves once, after its slot and soon."""

import random
from collections import Counter

import cocotb
import pytest
from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl.contract.params import preset
from weft.hdl.pacing.wheel import SLOT_BITS, Wheel, slots_of
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed
from weft.tb.sim.stream.clock import start_clock
from weft.tb.test.hdl.transmit.agents import run

PARAMS = preset("test").with_(qps=64)
SLOTS = slots_of(PARAMS)
SLOT_CYCLES = 16
NUMBERS = 1 << SLOT_BITS
LATE = 6        # cycles from the end of a slot to the output, if nothing is ahead


def after(a, b):
    """Return the signed distance of slot numbers."""
    return (a - b + NUMBERS // 2) % NUMBERS - NUMBERS // 2


class WheelBench:
    """Wheel with its clock of slots, and the model: the slots of the QPs that are inside, and when they were entered.

    ``stalls``: the share of cycles in which no QP is taken.
    """

    def __init__(self, dut, stalls):
        self.dut, self.rng, self.stalls = dut, random.Random(bench_seed()), stalls
        self.prompt = not stalls
        self.cycle, self.first = 0, NUMBERS - 3 * SLOTS      # the numbers start again during the test
        self.inside, self.seen, self.lateness = {}, Counter(), []
        self.history = []       # QPs that left or were entered, by cycle

    @property
    def now(self):
        return (self.first + self.cycle // SLOT_CYCLES) % NUMBERS

    async def tick(self, cycles=1):
        """Pass cycles in which no QP is entered."""
        for _ in range(cycles):
            await self.enter(None)

    async def enter(self, qpn, slot=0, at_once=0):
        """Pass a cycle, in which a QP may be entered; return whether it is too far away."""
        dut = self.dut
        dut.now.value, dut.stb.value = self.now, int(qpn is not None)
        dut.qpn.value, dut.slot.value, dut.at_once.value = qpn or 0, slot % NUMBERS, at_once
        dut.o__ready.value = takes = int(self.rng.random() >= self.stalls)
        await ReadOnly()
        far, leaves = bool(int(dut.far.value)), takes and int(dut.o__valid.value)
        if leaves:
            self._leave(int(dut.o__payload.value))
        if qpn is not None and not far:
            self.inside[qpn] = self.cycle if at_once or after(slot, self.now) < 0 else None, slot, at_once
        self.history.append(bool(leaves) + (qpn is not None))
        self.cycle += 1
        await RisingEdge(dut.clk)
        return far

    def _leave(self, qpn):
        due, slot, at_once = self.inside.pop(qpn)
        assert at_once or after(self.now, slot) > 0, f"QP {qpn} of slot {slot} left in slot {self.now}"
        if due is None:
            due = self.cycle - self.cycle % SLOT_CYCLES - SLOT_CYCLES * (after(self.now, slot) - 1)
        if self.prompt:
            others = sum(self.history[due:])
            assert self.cycle - due <= LATE + 2 * others, f"QP {qpn} left {self.cycle - due} cycles late"
        self.lateness.append(self.cycle - due)
        self.seen["left"] += 1


async def started(dut, stalls):
    await start_clock(dut)
    bench = WheelBench(dut, stalls)
    while not int(dut.ready.value):
        await bench.tick()
    return bench


async def enter_at_random(bench, count):
    rng = bench.rng
    while bench.seen["left"] < count:
        free = [qpn for qpn in range(PARAMS.qps) if qpn not in bench.inside]
        await bench.tick(rng.choice([1, 1, 2, 4]))
        if not free:
            continue
        kind = rng.choice(["near", "near", "same", "reach", "far", "past", "once"])
        ahead = {"near": rng.randrange(6), "same": 7 - bench.now % 8, "reach": rng.randrange(SLOTS - 3),
                 "far": rng.choice([SLOTS, SLOTS + rng.randrange(NUMBERS // 2 - 2 * SLOTS)]),
                 "past": -rng.choice([1, 2, rng.randrange(1, NUMBERS // 2)]), "once": rng.randrange(3 * SLOTS)}[kind]
        bench.seen[kind] += 1
        far = await bench.enter(rng.choice(free), bench.now + ahead, int(kind == "once"))
        assert far == (kind == "far"), (kind, ahead)
    bench.stalls = 0
    while bench.inside:
        await bench.tick()


@cocotb.test()
async def every_qp_leaves_once_after_its_slot(dut):
    bench = await started(dut, 0)
    await enter_at_random(bench, 3000)
    assert min(bench.seen[kind] for kind in ("near", "same", "reach", "far", "past", "once")) > 100
    assert bench.cycle > 4 * SLOTS * SLOT_CYCLES, "slots were used again, and their numbers started again"
    cocotb.log.info("lateness at most %d cycles, mean %.1f", max(bench.lateness),
                    sum(bench.lateness) / len(bench.lateness))


@cocotb.test()
async def no_qp_is_lost_while_none_is_taken(dut):
    bench = await started(dut, 0.97)
    await enter_at_random(bench, 800)
    assert max(bench.lateness) > 200, "QPs had to wait"


@cocotb.test()
async def all_qps_in_one_slot(dut):
    bench = await started(dut, 0)
    while bench.now % 8:
        await bench.tick()
    slot = bench.now + 10
    for qpn in range(PARAMS.qps):
        assert not await bench.enter(qpn, slot)
        await bench.tick()
    while bench.inside:
        await bench.tick()
    assert max(bench.lateness) <= LATE + PARAMS.qps, "a QP per cycle leaves"


@pytest.mark.parametrize("sim", SIMULATORS)
def test_qps_leave_the_wheel_in_time(sim):
    run(Wheel(PARAMS), name="pacing_wheel", cases=__file__, sim=sim)
