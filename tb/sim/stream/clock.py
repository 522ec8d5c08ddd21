"""Start of a bench: inputs at zero, clock, reset."""

import gc
import json
import os
from pathlib import Path

from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Timer

CLOCK_PERIOD_NS = 4  # 250 MHz


def ports():
    """Return the ports of the top module: ``{name: (direction, width)}``."""
    return {name: tuple(port) for name, port in json.loads(Path(os.environ["WEFT_PORTS"]).read_text()).items()}


def quiet_inputs(dut):
    """Set every input to zero."""
    gc.freeze()     # existing objects are permanent: scanning them for garbage took a tenth of a run
    for name, (direction, _) in ports().items():
        if direction == "input":
            getattr(dut, name).value = 0


def phase_ps(rng, period_ps, *, odd):
    """Return a random phase, odd or even.

    For two clocks with even periods, one with an odd and one with an even phase, no edges coincide. A value that a
    bench drives after an edge of one clock is therefore stable at the next edge of the other.
    """
    return 2 * rng.randrange(1, period_ps // 2) + odd


async def start_clocks(dut, clocks, resets):
    """Start asynchronous clocks and hold the ports ``resets`` high for 40 cycles of the slowest one.

    ``clocks`` is ``{port: (period, phase)}``, both in picoseconds; periods are even, phases come from :func:`phase_ps`.
    The inputs get a value before the first edge, because toggles without a reset would stay unknown.
    """
    quiet_inputs(dut)
    for name in resets:
        getattr(dut, name).value = 1
    passed = 0
    for name, (period, phase) in sorted(clocks.items(), key=lambda item: item[1][1]):
        if phase > passed:
            await Timer(phase - passed, "ps")
        Clock(getattr(dut, name), period, unit="ps").start()
        passed = phase
    await ClockCycles(getattr(dut, max(clocks, key=lambda name: clocks[name][0])), 40)
    for name in resets:
        getattr(dut, name).value = 0


async def start_clock(dut):
    """Set every input to zero, start the clock on ``dut.clk`` and hold ``dut.rst`` for four cycles; return its task.

    Returns just after a rising edge with the reset released. A component without registers has no clock: then only
    the inputs are set.
    """
    quiet_inputs(dut)
    known = ports()
    if "clk" not in known:
        await Timer(CLOCK_PERIOD_NS, "ns")
        return None
    if "rst" in known:
        dut.rst.value = 1
    task = Clock(dut.clk, CLOCK_PERIOD_NS, unit="ns").start()
    await ClockCycles(dut.clk, 4)
    if "rst" in known:
        dut.rst.value = 0
        await ClockCycles(dut.clk, 1)
    return task
