"""Tests of the hold of the PCIe subsystem before a reset: nothing new begins, and it becomes idle."""

import random
from collections import Counter

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from weft.hdl.part.layouts import DmaRequest
from weft.hdl.part.stream import pass_unless
from weft.tb.sim.block.pcie.pcie_subsystem import BULKS, WRITERS, pcie_subsystem
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import pack, receive, unpack
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.hdl.pcie.traffic_bench import TrafficBench

GATES = {"single": False, "group": True}
CASES = {"waits", "shown continues", "group continues"}


class Gates(wiring.Component):
    """Two streams under one ``hold``: one of single items, one of groups."""

    def __init__(self):
        super().__init__({"hold": In(1)} | {
            f"{direction}_{name}": flow(stream.Signature(DmaRequest))
            for name in GATES for direction, flow in (("i", In), ("o", Out))})

    def elaborate(self, platform):
        m = Module()
        for name, groups in GATES.items():
            source, sink = getattr(self, f"i_{name}"), getattr(self, f"o_{name}")
            pass_unless(m, self.hold, flipped(source), flipped(sink), groups=groups)
        return m


async def watch(dut, name, seen):
    """Check that an item passes unless held.

    While held, only an item that was offered before passes, or one of a group that has begun.
    """
    hold, offered = dut.hold, getattr(dut, f"i_{name}__valid")
    valid, ready, payload = (getattr(dut, f"o_{name}__{part}") for part in ("valid", "ready", "payload"))
    shown = inside = False
    while True:
        await RisingEdge(dut.clk)
        held, passes = bool(int(hold.value)), bool(int(valid.value))
        assert passes == (bool(int(offered.value)) and (not held or shown or inside)), (held, shown, inside)
        if held:
            seen["waits"] += int(offered.value) and not passes
            seen["shown continues"] += passes and shown
            seen["group continues"] += passes and inside
        shown = passes and not int(ready.value)
        if GATES[name] and passes and int(ready.value):
            inside = not unpack(DmaRequest, int(payload.value)).last


@cocotb.test(timeout_time=100, timeout_unit="us")
async def nothing_starts_while_held(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    seen = {name: Counter() for name in GATES}
    sources = {name: StreamSource(dut, f"i_{name}", dut.clk, 0.3, rng) for name in GATES}
    sinks = {name: StreamSink(dut, f"o_{name}", dut.clk, 0.4, rng) for name in GATES}
    items = [pack(DmaRequest, address=k, length=1, last=int(rng.random() < 0.3)) for k in range(600)]
    for name in GATES:
        cocotb.start_soon(watch(dut, name, seen[name]))
        for item in items:
            sources[name].send_nowait(item)
    while any(len(sink) < len(items) for sink in sinks.values()):
        dut.hold.value = rng.randrange(2)
        await ClockCycles(dut.clk, rng.randint(1, 8))
    for sink in sinks.values():
        assert await sink.recv_many(len(items)) == items
    assert {case for case, times in seen["group"].items() if times} == CASES
    assert {case for case, times in seen["single"].items() if times} == CASES - {"group continues"}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def held_subsystem_becomes_idle(dut):
    """The subsystem becomes idle although nothing takes the data it has read.

    After the release, groups that had not begun are executed completely.
    """
    bench = TrafficBench(dut, take_packets=False)
    await bench.start()
    images = [bytearray(image) for image in bench.image()]
    wanted = [bench.ask(k, 40) for k in range(BULKS)]
    while not all(int(getattr(dut, f"o_bulk__{k}__valid").value) for k in range(BULKS)):
        await RisingEdge(dut.clk)
    writes = [cocotb.start_soon(bench.write_groups(k, 20)) for k in range(WRITERS)]
    while not all(source.sent for source in bench.requests):
        await RisingEdge(dut.clk)
    dut.hold.value = 1
    await RisingEdge(dut.clk)
    await with_timeout(bench.at_rest(), 50, "us")
    for _ in range(200):
        await RisingEdge(dut.clk)
        assert int(dut.idle.value) and not int(dut.m_axis_rq__tvalid.value)
    waiting = [sum(map(int, (getattr(dut, f"i_{name}__{k}__valid").value for k in range(2))))
               for name in ("bulk", "request")]
    assert all(waiting), "nothing was left to hold back"
    packets = [StreamSink(dut, f"o_bulk__{k}", dut.clk, 0.1, bench.rng) for k in range(BULKS)]
    await RisingEdge(dut.clk)
    dut.hold.value = 0
    for sink, groups in zip(packets, wanted, strict=True):
        first, error = await with_timeout(receive(sink), 20, "us")
        begun = groups.index(first)
        assert begun and not error
        for group in groups[begun + 1:]:
            assert await with_timeout(receive(sink), 100, "us") == (group, 0)
    await bench.apply_writes(writes, images)
    assert bench.image() == [bytes(image) for image in images], "host memory differs from the written data"


@pytest.mark.parametrize("sim", SIMULATORS)
def test_nothing_starts_while_held(sim):
    simulate(Gates(), name="pcie_gates", cases=__file__, sim=sim, tests="nothing_starts_while_held")


@pytest.mark.parametrize("sim", SIMULATORS)
def test_held_subsystem_becomes_idle(sim):
    simulate(pcie_subsystem(), name="pcie_subsystem", cases=__file__, sim=sim, tests="held_subsystem_becomes_idle")
