"""Tests of the DMA write engine against a byte memory."""

import os
import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge, with_timeout

from weft.hdl.contract.params import preset
from weft.hdl.pcie.dma_write import DmaWrite
from weft.tb.sim.block.pcie.pcie_subsystem import group
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import beats
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.hdl.pcie.partners import WriteMemory

CLIENTS = 3


class Bench:
    def __init__(self, dut, pause=0.0):
        self.dut, self.rng = dut, random.Random(bench_seed())
        self.requests = [StreamSource(dut, f"i_request__{k}", dut.clk, pause, self.rng) for k in range(CLIENTS)]
        self.data = [StreamSource(dut, f"i_data__{k}", dut.clk, pause, self.rng) for k in range(CLIENTS)]
        self.sink = StreamSink(dut, "o", dut.clk, pause, self.rng)

    async def collect(self, size, expected):
        """Take TLPs until every expected byte was written exactly once, and no other; return the memory."""
        memory, wanted = WriteMemory(size), sum(len(p) for p in expected)
        written = 0
        while written < wanted or memory._left is not None:
            tlps = memory.tlps
            memory.beat(await with_timeout(self.sink.recv(), 100, "us"))
            if memory.tlps != tlps:
                written += memory.log[-1][1]
        return memory

    def queue(self, client, pieces):
        payload = self.rng.randbytes(sum(n for _, n in pieces))
        for word in group(pieces):
            self.requests[client].send_nowait(word)
        for word in beats(payload):
            self.data[client].send_nowait(word)
        bytes_, at = {}, 0
        for address, length in pieces:
            bytes_.update(zip(range(address, address + length), payload[at:at + length], strict=True))
            at += length
        return bytes_


@cocotb.test()
async def offsets_and_lengths(dut):
    """Every byte offset of a beat with the lengths around every boundary."""
    await start_clock(dut)
    bench = Bench(dut)
    dut.cfg_max_payload.value = 0
    step = int(os.environ["WEFT_STEP"])
    lengths = [*range(1, 10), *range(58, 70), *range(122, 133), 250, 257]
    cases = [(offset, length) for offset in range(64) for length in lengths]
    cases = cases[bench_seed() % step::step]
    expected = []
    for k, (offset, length) in enumerate(cases):
        expected.append(bench.queue(k % CLIENTS, [(k * 4096 + offset, length)]))
    memory = await bench.collect(128, expected)
    everything = {a: v for part in expected for a, v in part.items()}
    assert memory.bytes == everything


@cocotb.test()
async def scatter_groups(dut):
    """Groups of several requests from several clients, with pauses everywhere."""
    await start_clock(dut)
    bench = Bench(dut, pause=0.3)
    for code in (0, 1, 2, 5):
        dut.cfg_max_payload.value = code
        expected, region = [], 0
        for _ in range(int(os.environ["WEFT_GROUPS"])):
            pieces = []
            for _ in range(bench.rng.choice([1, 1, 2, 4])):
                length = bench.rng.choice([1, 3, 4, 64, bench.rng.randint(1, 300), bench.rng.randint(1, 4096)])
                upper = bench.rng.getrandbits(31) << 33 if region % 2 else 0
                pieces.append((upper + 0xFFFE_8000 + region * 0x4000 + bench.rng.randrange(0x2000), length))
                region += 1
            expected.append(bench.queue(bench.rng.randrange(CLIENTS), pieces))
        memory = await bench.collect(128 << code, expected)
        assert memory.bytes == {a: v for part in expected for a, v in part.items()}
        assert any(a >> 33 for a in memory.bytes)
        assert any(a >> 32 == 1 for a in memory.bytes) and any(a < 1 << 32 for a in memory.bytes)
    for _ in range(20):
        await RisingEdge(dut.clk)
    assert not int(dut.busy.value)


@cocotb.test()
async def full_rate(dut):
    """4 KiB groups at any offset: one beat per cycle, with at most two cycles per group lost."""
    await start_clock(dut)
    bench = Bench(dut)
    dut.cfg_max_payload.value = 2
    for k in range(8):
        bench.queue(0, [(k * 8192 + 37 * (k & 1), 4096)])
    while not int(dut.i_request__0__valid.value):
        await RisingEdge(dut.clk)
    latency = 0
    while not int(dut.o__valid.value):
        await RisingEdge(dut.clk)
        latency += 1
    cocotb.log.warning("first beat after %d cycles", latency)
    assert latency <= 10
    cycles = 0
    while bench.sink.received < 4 * 64 + 4 * 65:
        await RisingEdge(dut.clk)
        cycles += 1
    cocotb.log.warning("8 groups of 4 KiB, every other one unaligned: %d cycles", cycles)
    assert cycles <= 8 * (65 + 2)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_bytes_are_written_to_their_addresses(sim):
    quick = sim == "icarus"
    simulate(DmaWrite(preset("test"), clients=CLIENTS), name="pcie_dma_write", cases=__file__, sim=sim,
             env={"WEFT_STEP": "3" if quick else "1", "WEFT_GROUPS": "12" if quick else "40"})
