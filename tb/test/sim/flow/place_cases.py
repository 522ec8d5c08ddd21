"""A bench that logs the location of its code, and its seed."""

import os
from pathlib import Path

import cocotb
from cocotb.triggers import ClockCycles

from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.stream.clock import start_clock


@cocotb.test()
async def it_counts(dut):
    await start_clock(dut)
    dut._log.info(f"its code is in {Path(__file__).parents[5]}")
    dut._log.info(f"its seed is {bench_seed()}")
    assert os.environ["WEFT_RUN"] == os.getcwd()
    before = int(dut.o.value)
    await ClockCycles(dut.clk, 10)
    assert int(dut.o.value) == before + 10
