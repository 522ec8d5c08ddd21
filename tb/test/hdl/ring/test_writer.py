"""Tests of the ring writer with a host that polls phase bits and consumes late."""

import gc
import random
from collections import Counter
from itertools import product

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS, start_clock
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.hdl.pcie.dma_write_sink import DmaWriteSink
from weft.tb.test.rounds import rounds

BASE = 0x7_89AB_CD40
VECTOR = 5
TOGETHER, PACE = 4, 3
bench_test = cocotb.test(timeout_time=2, timeout_unit="ms")


class Host:
    """Polls the ring in memory by phase and rings the consumer doorbell."""

    def __init__(self, dut, rng, *, log2, pause, busy=None):
        self.dut, self.log2, self.size = dut, log2, 1 << log2
        self.dma = DmaWriteSink(dut, dut.clk, pause=pause if busy is None else busy, rng=rng)
        self.source = StreamSource(dut, "i", dut.clk, pause=pause, rng=random.Random(rng.random()))
        self.interrupts = StreamSink(dut, "o_interrupt", dut.clk, pause=pause, rng=random.Random(rng.random()))
        self.cons = 0
        self.got = []

    async def configure(self):
        self.dut.base.value, self.dut.log2.value = BASE, self.log2
        await RisingEdge(self.dut.clk)
        self.dut.enable.value = 1
        await RisingEdge(self.dut.clk)

    def poll(self):
        """Take one entry if its phase bit shows that it is valid."""
        address = BASE + 64 * (self.cons % self.size)
        if self.dma.memory.get(address) is None:
            return False
        entry = int.from_bytes(self.dma.read(address, 64), "little")
        if entry & 1 != (self.cons >> self.log2 & 1) ^ 1:
            return False
        self.got.append(entry >> 1)
        self.cons += 1
        return True

    async def doorbell(self, *, arm=0, value=None):
        self.dut.cons.value = (self.cons if value is None else value) & (2 * self.size - 1)
        self.dut.arm.value, self.dut.cons_stb.value = arm, 1
        await RisingEdge(self.dut.clk)
        self.dut.cons_stb.value = 0


async def setup(dut, rng, *, log2, pause=0.3, busy=None):
    await start_clock(dut)
    host = Host(dut, rng, log2=log2, pause=pause, busy=busy)
    await host.configure()
    return host


async def ticks(dut, count):
    for _ in range(count):
        await RisingEdge(dut.clk)


@bench_test
async def every_entry_arrives_once_over_many_laps(dut):
    rng = random.Random(bench_seed())
    host = await setup(dut, rng, log2=3, busy=0.6)
    sent, seen = [], Counter()
    for _ in rounds(seen, ["full", *range(1, TOGETHER + 1)], times=3, most=40):
        sent += [rng.getrandbits(512) for _ in range(90)]
        for entry in sent[-90:]:
            host.source.send_nowait(entry)
        while len(host.got) < len(sent):
            taken = rng.randint(0, 10)
            while taken and host.poll():
                taken -= 1
            await host.doorbell()
            await ticks(dut, rng.randint(2, 40))
            seen["full"] += int(dut.full.value)
            accepted = host.source.sent
            assert accepted - host.cons <= host.size, "an entry was overwritten"
            assert int(dut.free.value) <= host.size
        while groups := host.dma.groups:
            ((address, length),), data = groups.pop()
            first, count = (address - BASE) // 64, length // 64
            assert len(data) == length and first // TOGETHER == (first + count - 1) // TOGETHER, "it goes too far"
            seen[count] += 1
    assert host.got == [entry >> 1 for entry in sent]
    await ticks(dut, 4)
    assert int(dut.prod.value) == len(sent) & 15 and int(dut.position.value) == len(sent) & 7
    assert int(dut.idle.value) and not int(dut.drop__stb.value)


@bench_test
async def marked_entries_are_known_until_they_are_consumed(dut):
    """The flag of marked entries, and the flag that half of the ring is in use."""
    rng = random.Random(bench_seed())
    host = await setup(dut, rng, log2=3)
    sent, newest, seen = 0, 0, Counter()
    for _ in rounds(seen, product((False, True), repeat=2), least=80, most=800):
        for _ in range(rng.randint(0, host.size - (sent - host.cons))):
            dut.mark.value = mark = int(rng.random() < 0.3)
            host.source.send_nowait(rng.getrandbits(512))
            while host.source.sent == sent:
                await RisingEdge(dut.clk)
            sent += 1
            newest = sent if mark else newest
        dut.mark.value = 0
        while int(dut.prod.value) != sent & 15:
            await RisingEdge(dut.clk)
        for _ in range(rng.choice([0, 1, 2, 8])):
            host.poll()
        await host.doorbell()
        await ticks(dut, 4)
        now = (newest > host.cons, sent - host.cons >= host.size // 2)
        assert (bool(int(dut.marked.value)), bool(int(dut.half.value))) == now
        seen[now] += 1
    dut.enable.value = 0
    await ticks(dut, 9)
    dut.enable.value = 1
    await ticks(dut, 9)
    assert not int(dut.marked.value) and not int(dut.half.value)


@bench_test
async def interrupt_fires_once_per_arming_after_its_entry(dut):
    rng = random.Random(bench_seed())
    host = await setup(dut, rng, log2=4)
    for _ in range(30):
        entries = rng.randint(1, 5)
        early = rng.random() < 0.5
        if early:
            await host.doorbell(arm=1)
            await ticks(dut, 20)
            assert not len(host.interrupts), "nothing is unconsumed"
        for _ in range(entries):
            host.source.send_nowait(rng.getrandbits(512))
        if not early:
            await ticks(dut, rng.randint(0, 30))
            await host.doorbell(arm=1)
        assert await host.interrupts.recv() == VECTOR
        assert host.poll(), "the interrupt came before the entry"
        await host.source.idle()
        while int(dut.prod.value) != host.source.sent & 31:
            await RisingEdge(dut.clk)
        await ticks(dut, 40)
        assert not len(host.interrupts), "it fired without being armed"
        while host.poll():
            pass
        assert len(host.got) == host.source.sent
        await host.doorbell()
    await ticks(dut, 20)
    assert not len(host.interrupts)


@bench_test
async def inconsistent_consumer_index_is_ignored(dut):
    rng = random.Random(bench_seed())
    host = await setup(dut, rng, log2=2)
    for _ in range(3):
        await host.source.send(rng.getrandbits(512))
    await ticks(dut, 60)
    refused = 0

    async def watch():
        nonlocal refused
        while True:
            await RisingEdge(dut.clk)
            if int(dut.drop__stb.value):
                assert int(dut.drop__reason.value) == abi.Reason.BAD_DESCRIPTOR
                refused += 1
    cocotb.start_soon(watch())
    for value, arm in ((4, 1), (2, 0), (1, 0)):     # beyond prod, valid, backwards
        await host.doorbell(value=value, arm=arm)
        await ticks(dut, 1)
    await ticks(dut, 10)
    assert refused == 2 and int(dut.free.value) == 3 and not len(host.interrupts)
    for value in (2, 1, 2):                         # the newest of consecutive ones, one per cycle
        await host.doorbell(value=value)
    await ticks(dut, 10)
    assert refused == 2 and int(dut.free.value) == 3
    await host.doorbell(value=2, arm=1)
    assert await host.interrupts.recv() == VECTOR


@bench_test
async def disabled_ring_waits_and_restarts(dut):
    rng = random.Random(bench_seed())
    host = await setup(dut, rng, log2=2)
    for _ in range(6):
        host.source.send_nowait(rng.getrandbits(512))
    await ticks(dut, 60)
    assert int(dut.full.value) and sum(len(data) for _, data in host.dma.groups) == 4 * 64 and host.source.sent == 4
    written = len(host.dma.groups)
    dut.enable.value = 0
    await ticks(dut, 20)
    assert int(dut.full.value) and int(dut.free.value) == 0 and int(dut.prod.value) == 0
    dut.enable.value = 1
    await host.doorbell(value=0, arm=1)
    assert await host.interrupts.recv() == VECTOR
    (address, length), = (await host.dma.group(written))[0]
    assert address == BASE and host.dma.groups[written][1][0] & 1
    if length == 64:
        await host.dma.group(written + 1)
    await ticks(dut, 5)
    assert int(dut.prod.value) == 2 and int(dut.free.value) == 2


@bench_test
async def one_entry_per_cycle(dut):
    rng = random.Random(bench_seed())
    host, entries = await setup(dut, rng, log2=10, pause=0.0), 1 << 10
    start = get_sim_time("ns")
    for _ in range(entries):
        host.source.send_nowait(rng.getrandbits(512))
    over = cocotb.start_soon(host.source.idle())
    while not over.done():
        await RisingEdge(dut.clk)
        used = host.source.sent     # the block may show those of the cycle before or after
        assert abs(entries - used - int(dut.free.value)) <= 1
        assert abs(2 * used - entries) <= 2 or int(dut.half.value) == (2 * used >= entries)
    cycles = (get_sim_time("ns") - start) // CLOCK_PERIOD_NS
    cocotb.log.info("%d entries in %d cycles", entries, cycles)
    assert cycles <= entries + 4


@pytest.mark.parametrize("sim", SIMULATORS)
def test_entries_reach_the_host(sim):
    from weft.hdl.ring.writer import RingWriter
    writer = RingWriter(preset("test"), VECTOR, together=TOGETHER, pace=PACE)
    simulate(writer, name="ring_writer", cases=__file__, sim=sim)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_unknown_vector_is_rejected():
    from weft.hdl.ring.writer import RingWriter
    with pytest.raises(ValueError, match="vector 8"):
        RingWriter(preset("test"), 8)
    gc.collect()  # collect the half-built block while its warning is ignored
