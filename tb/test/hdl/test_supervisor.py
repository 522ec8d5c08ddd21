"""Tests of the supervisor: registers about the card, its time, and a reset that waits for outstanding work."""

import random
from collections import Counter

import cocotb
import pytest
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.hdl.supervisor import Supervisor
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS, start_clock

PARAMS = preset("test")
ENABLE, RESET = 1, 2        # bits of `control`
IDLE, RESET_DONE, DMA_LOST = 1, 2, 4     # bits of `status`


def value(dut, name):
    return int(getattr(dut, name).value)


@cocotb.test()
async def card_reports_its_capabilities(dut):
    await start_clock(dut)
    await ReadOnly()
    assert value(dut, "registers__magic") == abi.MAGIC
    version = value(dut, "registers__version")
    assert (version >> 24, version >> 16 & 0xFF, version & 0xFFFF) == abi.VERSION
    tables = value(dut, "registers__cap_tables").to_bytes(4, "little")
    assert (1 << tables[0], 1 << tables[1], 1 << tables[2], tables[3]) == (PARAMS.qps, PARAMS.mrs, PARAMS.ptes, 0)
    adamap = value(dut, "registers__cap_adamap")
    assert (adamap & 0xFFFF, adamap >> 16) == (PARAMS.window_bits, PARAMS.cache_entries)
    extents, vectors, depth, blocks_log2 = value(dut, "registers__cap_misc").to_bytes(4, "little")
    assert (extents, vectors, depth, blocks_log2) == (
        PARAMS.knit_extents, PARAMS.msix_vectors, PARAMS.prefetch_depth_max, PARAMS.extent_blocks_log2)
    assert value(dut, "registers__cap_transmit") == PARAMS.inline_bytes | PARAMS.pace_descriptors << 16


@cocotb.test()
async def time_continues(dut):
    """The time counts nanoseconds from the reset on, also across a reset of the subsystems."""
    await start_clock(dut)
    await ReadOnly()
    first = value(dut, "time_ns")
    for cycle in range(1500):
        assert value(dut, "time_ns") == value(dut, "registers__time_ns") == first + cycle * CLOCK_PERIOD_NS
        await RisingEdge(dut.clk)
        dut.dma_idle.value, dut.registers__control.value = 1, RESET if cycle % 100 == 50 else 0
        await ReadOnly()


@cocotb.test()
async def every_digit_of_the_time_counts(dut):
    """Set the time to each value before a carry, which no run reaches, and let it continue.

    In Icarus alone: Verilator does not store a value in the register of an output.
    """
    if cocotb.SIM_NAME.startswith("Verilator"):
        return
    await start_clock(dut)
    for bit in range(CLOCK_PERIOD_NS.bit_length() - 1, 65):
        last = (1 << bit) - CLOCK_PERIOD_NS
        for began in (last, ~last & -CLOCK_PERIOD_NS):
            began %= 1 << 64
            await FallingEdge(dut.clk)
            dut.time_ns.value = dut.registers__time_ns.value = began
            for passed in range(1, 3):
                await RisingEdge(dut.clk)
                await ReadOnly()
                now = (began + passed * CLOCK_PERIOD_NS) % (1 << 64)
                assert (value(dut, "time_ns"), value(dut, "registers__time_ns")) == (now, now), hex(began)


@cocotb.test()
async def reset_waits(dut):
    """Compare the reset with a model.

    ``hold`` rises in the cycle after control bit 1. The reset comes when DMA and MAC have been at rest for a cycle and
    control bit 0 is clear. It lasts one cycle, and comes again while bit 1 stays set. A function-level reset requests
    it once, whatever control bit 0 is.
    """
    await start_clock(dut)
    await ReadOnly()
    rng, seen, began = random.Random(bench_seed()), Counter(), value(dut, "time_ns")
    await RisingEdge(dut.clk)
    hold = at_rest = core_reset = idle_before = lost = whole = function_before = 0
    control = function_reset = 0
    for cycle in range(1, 6001):
        if rng.random() < 0.1:
            control = rng.choice([0, 0, ENABLE, ENABLE, RESET, ENABLE | RESET])
        if rng.random() < 0.02:
            function_reset ^= 1
        inputs = {"idle": rng.getrandbits(1), "dma_idle": int(rng.random() < 0.6), "sending": int(rng.random() < 0.3),
                  "tables_clear": int(rng.random() < 0.8), "dma_lost": int(rng.random() < 0.05),
                  "function_reset": function_reset}
        for name, level in inputs.items():
            getattr(dut, name).value = level
        dut.registers__control.value = control | rng.getrandbits(30) << 2
        await ReadOnly()
        assert (value(dut, "hold"), value(dut, "core_reset")) == (hold, core_reset)
        assert value(dut, "time_ns") == value(dut, "registers__time_ns") == began + cycle * CLOCK_PERIOD_NS
        assert value(dut, "function_reset_done") == (core_reset and whole)
        assert value(dut, "enable") == int(control & ENABLE and inputs["tables_clear"])
        status = value(dut, "registers__status")
        assert status & IDLE == idle_before
        assert status & DMA_LOST == DMA_LOST * lost and int(dut.stop.value) == lost
        assert status & RESET_DONE == RESET_DONE * (inputs["tables_clear"] and not hold and not core_reset)
        quiet = inputs["dma_idle"] and not inputs["sending"]
        seen["DMA in flight"] += bool(hold and not inputs["dma_idle"] and not inputs["sending"])
        seen["during a frame"] += bool(hold and inputs["dma_idle"] and inputs["sending"])
        seen["still enabled"] += bool(hold and at_rest and quiet and control & ENABLE)
        seen["not at rest before"] += bool(hold and quiet and not at_rest)
        seen["reset"] += core_reset
        asked = function_reset and not function_before
        seen["lost"] += lost
        seen["function is reset"] += core_reset and whole
        seen["though enabled"] += bool(hold and at_rest and quiet and whole and control & ENABLE)
        seen["ends"] += bool(core_reset and not control & RESET)
        hold, at_rest, core_reset, whole, lost, function_before = (
            1 if control & RESET or asked else 0 if core_reset else hold, int(hold and quiet),
            int(hold and at_rest and quiet and (whole or not control & ENABLE)),
            1 if asked else 0 if core_reset else whole, int((lost or inputs["dma_lost"]) and not core_reset),
            function_reset)
        idle_before = inputs["idle"]
        await RisingEdge(dut.clk)
    for case in ("DMA in flight", "during a frame", "still enabled", "not at rest before", "reset", "ends", "lost",
                 "function is reset", "though enabled"):
        assert seen[case] > 5, f"{case}: {seen}"


@pytest.mark.parametrize("sim", SIMULATORS)
def test_reset_waits_for_started_work(sim):
    simulate(Supervisor(PARAMS), name="supervisor", cases=__file__, sim=sim)
