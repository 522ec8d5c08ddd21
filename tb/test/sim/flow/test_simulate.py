"""Tests of the simulation flow: builds are cached, failures are reported, streams keep their rules."""

import os
import random

import cocotb
import pytest
from amaranth.hdl import Assert, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles, with_timeout

from weft.tb.sim.flow import simulate as flow
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.stream import StreamSink, StreamSource

WIDTH = 40


class Queue(wiring.Component):
    """A small queue; its assertion fails when the value 0xBAD passes."""

    i: In(stream.Signature(WIDTH))
    o: Out(stream.Signature(WIDTH))

    def elaborate(self, _platform):
        m = Module()
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=WIDTH, depth=4)
        bad = Signal()
        m.d.sync += bad.eq(self.i.valid & (self.i.payload == 0xBAD))
        m.d.sync += Assert(~bad)
        m.d.comb += [
            fifo.w_data.eq(self.i.payload), fifo.w_en.eq(self.i.valid), self.i.ready.eq(fifo.w_rdy),
            self.o.payload.eq(fifo.r_data), self.o.valid.eq(fifo.r_rdy), fifo.r_en.eq(self.o.ready),
        ]
        return m


class Ends:
    """Source and sink of the queue."""

    def __init__(self, dut, pause):
        rng = random.Random(bench_seed())
        self.values = [rng.getrandbits(WIDTH) | 1 << 39 for _ in range(200)]
        self.source = StreamSource(dut, "i", dut.clk, pause=pause, rng=rng)
        self.sink = StreamSink(dut, "o", dut.clk, pause=pause, rng=rng)

    async def cross(self):
        for value in self.values:
            self.source.send_nowait(value)
        return await with_timeout(self.sink.recv_many(len(self.values)), 20, "us")


@cocotb.test()
async def random_pauses(dut):
    await start_clock(dut)
    ends = Ends(dut, pause=0.4)
    assert await ends.cross() == ends.values


@cocotb.test()
async def full_speed(dut):
    from cocotb.utils import get_sim_time

    await start_clock(dut)
    ends = Ends(dut, pause=0.0)
    began = get_sim_time("ns")
    assert await ends.cross() == ends.values
    cycles = (get_sim_time("ns") - began) / 4
    assert len(ends.values) <= cycles <= len(ends.values) + 6, cycles


@cocotb.test(skip=os.environ.get("FLOW") != "hdl_assert")
async def hdl_assert(dut):
    await start_clock(dut)
    StreamSource(dut, "i", dut.clk).send_nowait(0xBAD)
    await ClockCycles(dut.clk, 10)


@cocotb.test(skip=os.environ.get("FLOW") != "python_assert")
async def python_assert(dut):
    await start_clock(dut)
    assert bench_seed() == 0, "wrong on purpose"


@pytest.mark.parametrize("sim", SIMULATORS)
def test_streams_cross(sim):
    simulate(Queue(), name="flow", cases=__file__, sim=sim)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_failed_hdl_assert_fails_the_test(sim):
    with pytest.raises(AssertionError, match="ssert"):
        simulate(Queue(), name="flow", cases=__file__, sim=sim, env={"FLOW": "hdl_assert"}, tests="hdl_assert")


@pytest.mark.parametrize("sim", SIMULATORS)
def test_failed_bench_prints_seed_and_command(sim):
    with pytest.raises(AssertionError) as caught:
        simulate(Queue(), name="flow", cases=__file__, sim=sim, seed=77, env={"FLOW": "python_assert"},
                 tests="python_assert")
    message = str(caught.value)
    assert "python_assert" in message and "wrong on purpose" in message
    assert "assert 77 == 0" in message, "the bench's assertions do not report their operands"
    assert "WEFT_SEED=77 python -m pytest" in message and "test_failed_bench_prints_seed_and_command" in message


def test_empty_run_is_a_failure():
    with pytest.raises(AssertionError, match="no test was run|left no results|status"):
        simulate(Queue(), name="flow", cases=__file__, tests="there_is_no_such_test")


@pytest.mark.parametrize("sim", SIMULATORS)
def test_second_build_does_nothing(sim):
    text = flow.elaborate(Queue(), "top")
    first = flow.build(text, top="top", name="flow", sim=sim)
    stamp = (first / "ready").stat().st_mtime_ns
    assert flow.build(text, top="top", name="flow", sim=sim) == first
    assert (first / "ready").stat().st_mtime_ns == stamp
    assert flow.build(text + "\n// other\n", top="top", name="flow", sim="icarus") != first


@pytest.mark.parametrize("sim", SIMULATORS)
def test_waves_are_recorded(sim):
    run = simulate(Queue(), name="flow-waves", cases=__file__, sim=sim, waves=True)
    assert any(path.stat().st_size > 1000 for path in run.glob("waves.*"))


def test_missing_simulator_skips_locally_and_fails_in_ci(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError, match="apt-get install iverilog"):
        simulate(verilog="", top="top", name="flow", cases=__file__)
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="apt-get install iverilog"):
        simulate(verilog="", top="top", name="flow", cases=__file__)


def test_ports_are_read_from_verilog():
    text = "module a(x);\n  input x;\nendmodule\nmodule top(clk, i__payload, o);\n  input clk;\n  wire clk;\n" \
           "  input [39:0] i__payload;\n  output o;\nendmodule\n"
    assert flow.top_ports(text, "top") == {"clk": ("input", 1), "i__payload": ("input", 40), "o": ("output", 1)}
