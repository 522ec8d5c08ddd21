"""Start of a bench: inputs at zero, clock, reset."""

import gc
import json
import os
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Timer

CLOCK_PERIOD_NS = 4  # 250 MHz


def ports():
    """Return the ports of the top module: ``{name: (direction, width)}``."""
    return {name: tuple(port) for name, port in json.loads(Path(os.environ["WEFT_PORTS"]).read_text()).items()}


def _quiet_inputs(dut, known):
    """Set every input to zero."""
    gc.freeze()     # existing objects are permanent: scanning them for garbage took a tenth of a run
    for name, (way, _) in known.items():
        if way == "input":
            getattr(dut, name).value = 0


def phase_ps(rng, period_ps, *, odd):
    """Return a random phase, odd or even.

    For two clocks with even periods, one with an odd and one with an even phase, no edges coincide. A value that a
    bench drives after an edge of one clock is therefore stable at the next edge of the other.
    """
    return 2 * rng.randrange(1, period_ps // 2) + odd


async def start_clocks(dut, clocks, resets, reset_cycles=40):
    """Start asynchronous clocks and apply reset; compare :func:`start_clock`.

    The inputs get a value before the first edge, because toggles without a reset would stay unknown.

    Parameters
    ----------
    clocks : dict
        ``{port: (period, phase)}``, both in picoseconds; periods are even, phases come from :func:`phase_ps`.
    resets : tuple of str
        Ports that are high for ``reset_cycles`` cycles of the slowest clock.
    """
    _quiet_inputs(dut, ports())
    for name in resets:
        getattr(dut, name).value = 1
    passed = 0
    for name, (period, phase) in sorted(clocks.items(), key=lambda item: item[1][1]):
        if phase > passed:
            await Timer(phase - passed, "ps")
        Clock(getattr(dut, name), period, unit="ps").start()
        passed = phase
    await ClockCycles(getattr(dut, max(clocks, key=lambda name: clocks[name][0])), reset_cycles)
    for name in resets:
        getattr(dut, name).value = 0


async def start_clock(dut, period_ns=CLOCK_PERIOD_NS, reset_cycles=4):
    """Set every input to zero, start the clock on ``dut.clk`` and hold ``dut.rst`` for ``reset_cycles`` cycles.

    Returns just after a rising edge with the reset released. A component without registers has no clock: then only
    the inputs are set.
    """
    known = ports()
    _quiet_inputs(dut, known)
    if "clk" not in known:
        await Timer(period_ns, "ns")
        return None
    if "rst" in known:
        dut.rst.value = 1
    clock = Clock(dut.clk, period_ns, unit="ns")
    task = clock.start()
    await ClockCycles(dut.clk, reset_cycles)
    if "rst" in known:
        dut.rst.value = 0
        await ClockCycles(dut.clk, 1)
    cocotb.log.debug("clock of %d ns started", period_ns)
    return task
