"""Queues, pipeline registers and arbiters: nothing lost, order kept, full rate."""

import os
import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS, start_clock
from weft.tb.sim.stream.stream import StreamSink, StreamSource

WIDTH = 24                                      # bits 22:0 a value, bit 23 `last`
SOURCE_SHIFT = 21                               # an arbiter's item: `last`, source, random bits, 8 bits of a number
SOURCES = 3
INPUTS = int(os.environ.get("WEFT_INPUTS", "0"))
PACKETS = os.environ.get("WEFT_PACKETS") == "1"
TWINS = os.environ.get("WEFT_TWINS") == "1"
pipe_test = cocotb.test(timeout_time=200, timeout_unit="us", skip=INPUTS > 0)
arbiter_test = cocotb.test(timeout_time=200, timeout_unit="us", skip=INPUTS == 0)


def source_of(item):
    return item >> SOURCE_SHIFT & 3


async def never(dut, signal, edge):
    while True:
        await edge
        assert not int(signal.value), "the two do not do the same"


@pipe_test
async def items_pass_in_order(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    if TWINS:
        cocotb.start_soon(never(dut, dut.differ, RisingEdge(dut.clk)))
    source = StreamSource(dut, "i", dut.clk, pause=0.3, rng=random.Random(rng.random()))
    sink = StreamSink(dut, "o", dut.clk, pause=0.3, rng=random.Random(rng.random()))
    items = [rng.getrandbits(WIDTH) for _ in range(600)]
    for k, item in enumerate(items):
        source.send_nowait(item)
        if k % 100 == 99:
            source.pause, sink.pause = rng.choice([(0.0, 0.8), (0.8, 0.0), (0.3, 0.3)])
            await source.idle()
    assert await sink.recv_many(len(items)) == items


@pipe_test
async def one_item_per_cycle(dut):
    await start_clock(dut)
    source, sink = StreamSource(dut, "i", dut.clk), StreamSink(dut, "o", dut.clk)
    start = get_sim_time("ns")
    for k in range(300):
        source.send_nowait(k)
    assert await sink.recv_many(300) == list(range(300))
    slowest = 2 if os.environ.get("WEFT_DEPTH") == "1" else 1    # a queue of one is full or empty
    assert (get_sim_time("ns") - start) // CLOCK_PERIOD_NS <= 300 * slowest + 5


@arbiter_test
async def every_source_is_served_whole(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    if TWINS:
        cocotb.start_soon(never(dut, dut.differ, RisingEdge(dut.clk)))
    sources = [StreamSource(dut, f"i__{k}", dut.clk, pause=0.4, rng=random.Random(rng.random())) for k in range(INPUTS)]
    sink = StreamSink(dut, "o", dut.clk, pause=0.3, rng=random.Random(rng.random()))
    sent = []
    for k, source in enumerate(sources):
        sent.append([k << SOURCE_SHIFT | rng.getrandbits(SOURCE_SHIFT - 8) << 8 | n
                     | (rng.random() < 0.4 or n == 199) << (WIDTH - 1) for n in range(200)])
        for item in sent[k]:
            source.send_nowait(item)
    got = await sink.recv_many(200 * INPUTS)
    for k in range(INPUTS):
        assert [item for item in got if source_of(item) == k] == sent[k]
    if PACKETS:
        for before, after in zip(got, got[1:], strict=False):
            assert before >> (WIDTH - 1) or source_of(before) == source_of(after), "a packet was interrupted"


@arbiter_test
async def shares_are_equal_at_full_rate(dut):
    await start_clock(dut)
    sources = [StreamSource(dut, f"i__{k}", dut.clk) for k in range(INPUTS)]
    sink = StreamSink(dut, "o", dut.clk)
    start = get_sim_time("ns")
    for n in range(100):
        for k, source in enumerate(sources):
            source.send_nowait(k << SOURCE_SHIFT | n | 1 << (WIDTH - 1))
    got = await sink.recv_many(100 * INPUTS)
    assert (get_sim_time("ns") - start) // CLOCK_PERIOD_NS <= 100 * INPUTS + 5
    for at in range(INPUTS, 99 * INPUTS, INPUTS):
        assert {source_of(item) for item in got[at:at + INPUTS]} == set(range(INPUTS))


@pytest.mark.parametrize("sim", SIMULATORS)
@pytest.mark.parametrize("depth", [1, 5, 64, 100])
def test_queue_keeps_order(sim, depth):
    from weft.hdl.part.stream import Fifo
    simulate(Fifo(WIDTH, depth), name=f"fifo_{depth}", cases=__file__, sim=sim,
             env={"WEFT_DEPTH": str(depth)})


@pytest.mark.parametrize("sim", SIMULATORS)
@pytest.mark.parametrize("kind", ["plain", "standing", "turns", "block"])
@pytest.mark.parametrize("depth", [1, 2, 5, 16, 74])
def test_our_queue_does_what_the_library_does(sim, kind, depth):
    """Cycle by cycle: what is offered, taken and held."""
    from weft.tb.test.hdl.part.queue_twins import QueueTwins
    block = kind == "block"
    depth += block
    standing = {"standing": 1, "turns": 2}.get(kind, 0)
    simulate(QueueTwins(WIDTH, depth, block, standing), name=f"queue_twins_{depth}_{kind}", cases=__file__,
             sim=sim, env={"WEFT_DEPTH": "1" if depth - block == 1 else str(depth), "WEFT_TWINS": "1"})


@pytest.mark.parametrize("sim", SIMULATORS)
@pytest.mark.parametrize("part", ["PipelineRegister", "ReadyRegister", "Skid", "Pair"])
def test_pipeline_keeps_order(sim, part):
    from weft.hdl.part import stages
    simulate(getattr(stages, part)(WIDTH), name=part.lower(), cases=__file__, sim=sim)


@pytest.mark.parametrize("sim", SIMULATORS)
@pytest.mark.parametrize(("part", "inputs"), [("Arbiter", SOURCES), ("PacketArbiter", SOURCES), ("PacketArbiter", 1)])
def test_arbiter_is_fair(sim, part, inputs):
    from amaranth.lib import data

    from weft.hdl.part import arbiter
    shape = data.StructLayout({"value": WIDTH - 1, "last": 1})
    simulate(getattr(arbiter, part)(shape, inputs), name=f"{part.lower()}_{inputs}", cases=__file__,
             sim=sim, env={"WEFT_INPUTS": str(inputs), "WEFT_PACKETS": str(int(part == "PacketArbiter"))})


@pytest.mark.parametrize("sim", SIMULATORS)
@pytest.mark.parametrize("late", range(SOURCES))
def test_a_late_input_changes_no_choice(sim, late):
    """Cycle by cycle, beside an arbiter that knows of none."""
    from weft.tb.test.hdl.part.arbiter_twins import ArbiterTwins
    simulate(ArbiterTwins(WIDTH, SOURCES, late), name=f"arbiter_twins_{late}", cases=__file__,
             sim=sim, env={"WEFT_INPUTS": str(SOURCES), "WEFT_PACKETS": "1", "WEFT_TWINS": "1"})
