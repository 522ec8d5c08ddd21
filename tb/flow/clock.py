"""Start a bench: quiet inputs, clock, reset."""

import gc
import json
import os
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Timer

CLOCK_PERIOD_NS = 4  # 250 MHz


def ports():
    """Ports of the top module: ``{name: (direction, width)}``."""
    return {name: tuple(port) for name, port in json.loads(Path(os.environ["WEFT_PORTS"]).read_text()).items()}


async def start_clock(dut, period_ns=CLOCK_PERIOD_NS, reset_cycles=4):
    """Set every input to zero, start the clock on ``dut.clk`` and hold ``dut.rst`` for some cycles.

    Returns just after a rising edge with the reset released. A component without registers has no clock: then only
    the inputs are set.
    """
    gc.freeze()     # whatever is there now stays: looking through it for garbage took a tenth of a run
    known = ports()
    for name, (way, _) in known.items():
        if way == "input":
            getattr(dut, name).value = 0
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
