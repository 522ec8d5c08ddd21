"""Tests of a reset that is asserted at once, also without a clock, and released 32 cycles after its cause."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer

from weft.hdl.mac.reset_release import HOLD_LOG2, ResetRelease
from weft.tb.sim.flow.simulate import bench_seed, simulate

PERIOD_PS, SYNCHRONISER = 4000, 2


@cocotb.test()
async def reset_is_immediate_and_lasts(dut):
    """With causes of any length and phase, some while the last reset is still held, some without a clock."""
    rng = random.Random(bench_seed())
    dut.arst.value = 0
    dut.clk.value = 0
    await Timer(100, "ps")
    assert int(dut.rst.value), "at power-up the reset is held"
    clock = cocotb.start_soon(Clock(dut.clk, PERIOD_PS, unit="ps").start())
    await falls_after(dut, range(2**HOLD_LOG2 - 1, 2**HOLD_LOG2 + SYNCHRONISER + 2))
    again = stopped = 0
    for _ in range(30):
        await Timer(rng.randrange(1, 3 * PERIOD_PS), "ps")
        if rng.random() < 0.4:
            clock.cancel()
            dut.clk.value = 0
            await Timer(rng.randrange(1, PERIOD_PS), "ps")
            stopped += 1
        dut.arst.value = 1
        await Timer(1, "ps")
        assert int(dut.rst.value), "a reset does not wait for the clock"
        clock = clock if not clock.done() else cocotb.start_soon(Clock(dut.clk, PERIOD_PS, unit="ps").start())
        await Timer(rng.randrange(1, 5 * PERIOD_PS), "ps")
        assert int(dut.rst.value)
        dut.arst.value = 0
        if rng.random() < 0.5:
            for _ in range(rng.randrange(1, 2**HOLD_LOG2 - 2)):
                await RisingEdge(dut.clk)
                assert int(dut.rst.value)
            again += 1
            continue
        await falls_after(dut, range(2**HOLD_LOG2 + SYNCHRONISER - 1, 2**HOLD_LOG2 + SYNCHRONISER + 2))
    assert again and stopped


async def falls_after(dut, cycles):
    """Check that the reset is held for a number of cycles in ``cycles``, and falls at an edge of the clock."""
    for held in range(max(cycles) + 1):
        await RisingEdge(dut.clk)
        await Timer(1, "ps")
        if not int(dut.rst.value):
            assert held in cycles, f"{held} cycles"
            return
    raise AssertionError(f"the reset is still there after {max(cycles)} cycles")


def test_reset_release():
    simulate(ResetRelease("sync"), name="reset_release", cases=__file__)
