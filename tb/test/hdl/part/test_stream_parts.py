"""Tests of queues, pipeline registers and arbiters: no loss, order kept, full rate."""

import random

import cocotb
import pytest
from amaranth.lib import data
from cocotb.triggers import RisingEdge, gather
from cocotb.utils import get_sim_time

from weft.hdl.part import stages
from weft.hdl.part.arbiter import Arbiter, PacketArbiter
from weft.hdl.part.stream import Fifo
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS, start_clock
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.hdl.part.arbiter_twins import ArbiterTwins
from weft.tb.test.hdl.part.bank import Bank
from weft.tb.test.hdl.part.queue_twins import QueueTwins

WIDTH = 24                                      # bits 22:0 a value, bit 23 `last`
SOURCE_SHIFT = 21                               # an arbiter's item: `last`, source, random bits, 8 bits of a number
SOURCES = 3
ITEM = data.StructLayout({"value": WIDTH - 1, "last": 1})
KINDS = {"plain": (False, 0), "register": (False, 1), "turns": (False, 2), "block": (True, 0)}
SLOW = "slow"       # in the name of a queue of one item, which is full or empty: an item every other cycle

FIFOS = {f"fifo_{depth}{SLOW if depth == 1 else ''}": (Fifo, WIDTH, depth) for depth in (1, 5, 64, 100)}
QUEUES = {f"queue_{depth}_{kind}{SLOW if depth == 1 else ''}": (QueueTwins, WIDTH, depth + block, block,
                                                                output_registers)
          for depth in (1, 2, 5, 16, 74) for kind, (block, output_registers) in KINDS.items()}
PIPELINES = {name.lower(): (getattr(stages, name), WIDTH)
             for name in ("PipelineRegister", "ReadyRegister", "SkidBuffer", "PingPongBuffer")}
PIPES = FIFOS | QUEUES | PIPELINES
ARBITERS = {"arbiter": (Arbiter, ITEM, SOURCES), "packets": (PacketArbiter, ITEM, SOURCES),
            "packets_of_one": (PacketArbiter, ITEM, 1),
            **{f"late_{late}": (ArbiterTwins, WIDTH, SOURCES, late) for late in range(SOURCES)}}
TWINS = [*QUEUES, *(name for name in ARBITERS if name.startswith("late"))]


def source_of(item):
    return item >> SOURCE_SHIFT & 3


def inputs_of(name):
    """Return the number of inputs of an arbiter."""
    return ARBITERS[name][2]


async def watch_twins(dut):
    """Fail as soon as a part differs from its reference, in any cycle."""
    differ = {name: getattr(dut, f"{name}__differ") for name in TWINS}
    while True:
        await RisingEdge(dut.clk)
        wrong = [name for name, signal in differ.items() if int(signal.value)]
        assert not wrong, f"{wrong} differ from their references"


@cocotb.test(timeout_time=500, timeout_unit="us")
async def items_pass_in_order(dut):
    await start_clock(dut)
    cocotb.start_soon(watch_twins(dut))
    rng = random.Random(bench_seed())
    await gather(*(_pass_in_order(dut, name, random.Random(rng.random())) for name in PIPES))


async def _pass_in_order(dut, name, rng):
    source = StreamSource(dut, f"{name}__i", dut.clk, pause=0.3, rng=random.Random(rng.random()))
    sink = StreamSink(dut, f"{name}__o", dut.clk, pause=0.3, rng=random.Random(rng.random()))
    items = [rng.getrandbits(WIDTH) for _ in range(600)]
    for k, item in enumerate(items):
        source.send_nowait(item)
        if k % 100 == 99:
            source.pause, sink.pause = rng.choice([(0.0, 0.8), (0.8, 0.0), (0.3, 0.3)])
            await source.idle()
    assert await sink.recv_many(len(items)) == items, name


@cocotb.test(timeout_time=500, timeout_unit="us")
async def one_item_per_cycle(dut):
    await start_clock(dut)
    await gather(*(_full_rate(dut, name) for name in PIPES))


async def _full_rate(dut, name):
    source, sink = StreamSource(dut, f"{name}__i", dut.clk), StreamSink(dut, f"{name}__o", dut.clk)
    start = get_sim_time("ns")
    for k in range(300):
        source.send_nowait(k)
    assert await sink.recv_many(300) == list(range(300)), name
    assert (get_sim_time("ns") - start) // CLOCK_PERIOD_NS <= 300 * (1 + name.endswith(SLOW)) + 5, name


async def watch_source(dut, name):
    """Fail as soon as an arbiter shows another source than that of the item it offers, accepted or not."""
    valid, item, source = (getattr(dut, f"{name}__{port}") for port in ("o__valid", "o__payload", "source"))
    while True:
        await RisingEdge(dut.clk)
        assert not int(valid.value) or int(source.value) == source_of(int(item.value)), name


@cocotb.test(timeout_time=500, timeout_unit="us")
async def every_source_is_served_whole(dut):
    await start_clock(dut)
    cocotb.start_soon(watch_twins(dut))
    for name in set(ARBITERS) - set(TWINS):
        cocotb.start_soon(watch_source(dut, name))
    rng = random.Random(bench_seed())
    await gather(*(_served_whole(dut, name, random.Random(rng.random())) for name in ARBITERS))


async def _served_whole(dut, name, rng):
    inputs = inputs_of(name)
    sources = [StreamSource(dut, f"{name}__i__{k}", dut.clk, pause=0.4, rng=random.Random(rng.random()))
               for k in range(inputs)]
    sink = StreamSink(dut, f"{name}__o", dut.clk, pause=0.3, rng=random.Random(rng.random()))
    sent = []
    for k, source in enumerate(sources):
        sent.append([k << SOURCE_SHIFT | rng.getrandbits(SOURCE_SHIFT - 8) << 8 | n
                     | (rng.random() < 0.4 or n == 199) << (WIDTH - 1) for n in range(200)])
        for item in sent[k]:
            source.send_nowait(item)
    got = await sink.recv_many(200 * inputs)
    for k in range(inputs):
        assert [item for item in got if source_of(item) == k] == sent[k], name
    if name != "arbiter":
        for before, after in zip(got, got[1:], strict=False):
            assert before >> (WIDTH - 1) or source_of(before) == source_of(after), f"{name} interrupted a packet"


@cocotb.test(timeout_time=500, timeout_unit="us")
async def shares_are_equal_at_full_rate(dut):
    await start_clock(dut)
    await gather(*(_equal_shares(dut, name) for name in ARBITERS))


async def _equal_shares(dut, name):
    inputs = inputs_of(name)
    sources = [StreamSource(dut, f"{name}__i__{k}", dut.clk) for k in range(inputs)]
    sink = StreamSink(dut, f"{name}__o", dut.clk)
    start = get_sim_time("ns")
    for n in range(100):
        for k, source in enumerate(sources):
            source.send_nowait(k << SOURCE_SHIFT | n | 1 << (WIDTH - 1))
    got = await sink.recv_many(100 * inputs)
    assert (get_sim_time("ns") - start) // CLOCK_PERIOD_NS <= 100 * inputs + 5, name
    for at in range(inputs, 99 * inputs, inputs):
        assert {source_of(item) for item in got[at:at + inputs]} == set(range(inputs)), name


@pytest.mark.parametrize("sim", SIMULATORS)
def test_stream_parts(sim):
    """Test FIFOs, queues beside Amaranth's, pipeline registers, and arbiters beside one without a late input."""
    parts = {name: component(*arguments) for name, (component, *arguments) in (PIPES | ARBITERS).items()}
    simulate(Bank(parts), name="stream_parts", cases=__file__, sim=sim)
