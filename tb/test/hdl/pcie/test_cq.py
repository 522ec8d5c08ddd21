"""Tests of the register shim: permitted and invalid accesses of the host."""

import logging
import random
from types import SimpleNamespace

import cocotb
import pytest
from cocotb.triggers import RisingEdge, with_timeout
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource

from weft.hdl.contract import abi
from weft.hdl.part.layouts import PushedDescriptor, RegisterWrite
from weft.hdl.pcie.cq import STATUS_OK, STATUS_UNSUPPORTED, CompletionHeader, HostDescriptor
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import pack, unpack
from weft.tb.sim.stream.stream import StreamSink

READ, WRITE, IO_READ, IO_WRITE, FETCH_ADD, SWAP, COMPARE_SWAP, LOCKED = range(8)
MESSAGE, VENDOR_MESSAGE = 12, 13


class Bench:
    """Raw requests and completions; the register bus is a function of the address."""

    def __init__(self, dut):
        self.dut, self.rng, self.refused = dut, random.Random(bench_seed()), 0
        self.cq = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s_axis_cq", bus_separator="__"), dut.clk, dut.rst)
        self.cc = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis_cc", bus_separator="__"), dut.clk, dut.rst)
        for stream in (self.cq, self.cc):
            stream.log.setLevel(logging.WARNING)
        self.writes = StreamSink(dut, "registers__write", dut.clk, 0.3, self.rng)
        self.cc.set_pause_generator(iter(lambda: self.rng.random() < 0.3, None))
        cocotb.start_soon(self._registers())
        cocotb.start_soon(self._refusals())

    @staticmethod
    def word(address):
        return (address >> 3) * 0x0123_4567_89AB_CDEF & (1 << 64) - 1

    async def _registers(self):
        while True:
            await RisingEdge(self.dut.clk)
            self.dut.registers__read_ack.value = 0
            if int(self.dut.registers__read_stb.value):
                address = int(self.dut.registers__read_address.value)
                for _ in range(self.rng.randint(0, 3)):
                    await RisingEdge(self.dut.clk)
                self.dut.registers__read_data.value = self.word(address)
                self.dut.registers__read_ack.value = 1

    async def _refusals(self):
        while True:
            await RisingEdge(self.dut.clk)
            self.refused += int(self.dut.rejected.value)

    async def request(self, kind, address=0, dwords=1, first_be=0xF, last_be=0, bar=0, payload=()):
        """Send one request; return its descriptor."""
        tag, requester = self.rng.getrandbits(8), self.rng.getrandbits(16)
        head = pack(HostDescriptor, address=address >> 2, dwords=dwords, kind=kind, requester_id=requester, tag=tag,
                    bar=bar, traffic_class=self.rng.getrandbits(3), attributes=self.rng.getrandbits(3))
        lanes = [head >> 32 * k & 0xFFFF_FFFF for k in range(4)] + list(payload)
        await self.cq.send(AxiStreamFrame(lanes, tuser=first_be | last_be << 8))
        return unpack(HostDescriptor, head)

    async def answer(self, head):
        """Return the next completion, after a check that it belongs to the request."""
        frame = await with_timeout(self.cc.recv(), 2, "us")
        lanes = list(frame.tdata)
        got = unpack(CompletionHeader, sum(lane << 32 * k for k, lane in enumerate(lanes[:3])))
        assert (got.tag, got.requester_id, got.traffic_class, got.attributes) == (
            head.tag, head.requester_id, head.traffic_class, head.attributes)
        assert len(lanes) == 3 + got.dwords
        return SimpleNamespace(**vars(got), payload=lanes[3:])


@cocotb.test()
async def served(dut):
    """Reads and writes of 4 and 8 bytes, and reads of part of a double word."""
    await start_clock(dut)
    bench = Bench(dut)
    for _ in range(60):
        place = bench.rng.choice([bench.rng.randrange(0, abi.PUSH_BASE, 4),
                                  bench.rng.randrange(abi.PUSH_END, 1 << 16, 4)])
        address = 0xF000_0000_0000 + place
        wide = bench.rng.random() < 0.5 and not address & 4
        payload = [bench.rng.getrandbits(32) for _ in range(1 + wide)]
        be = {"dwords": 1 + wide, "last_be": 0xF if wide else 0}
        if bench.rng.random() < 0.5:
            await bench.request(WRITE, address, payload=payload, **be)
            got = unpack(RegisterWrite, await with_timeout(bench.writes.recv(), 2, "us"))
            assert (got.address, got.wide) == (address & 0xFFFF, wide)
            assert got.data & (1 << 32 * len(payload)) - 1 == sum(p << 32 * k for k, p in enumerate(payload))
            continue
        first_be = 0xF if wide else bench.rng.randrange(16)
        got = await bench.answer(await bench.request(READ, address, first_be=first_be, **be))
        assert got.status == STATUS_OK and got.dwords == 1 + wide
        word = bench.word(address & 0xFFFF)
        assert got.payload == ([word & 0xFFFF_FFFF, word >> 32] if wide else [word >> 8 * (address & 4) & 0xFFFF_FFFF])
        low = (first_be & -first_be).bit_length() - 1 if first_be else 0
        count = 8 if wide else max(first_be.bit_length() - low, 1)
        assert (got.lower_address, got.byte_count) == ((address + low) & 0x7F, count)
    assert not bench.refused


@cocotb.test()
async def pushed(dut):
    """Whole descriptors with every byte checked, parts with the window alone checked; register writes in between."""
    await start_clock(dut)
    bench, seen = Bench(dut), set()
    sink = StreamSink(dut, "o_push", dut.clk, 0.3, bench.rng)
    while len(seen) < 7 or sink.received < 60:
        ring, window = bench.rng.randrange(len(abi.PUSH_RINGS)), bench.rng.randrange(abi.PUSH_WINDOWS)
        page = abi.PUSH_BASE + ring * abi.PUSH_PAGE_BYTES + (bench.rng.getrandbits(30) << 16)
        dwords = bench.rng.choice([1, 2, 12, 13, 15, 16, 16, 16, 16])
        first = bench.rng.choice([0, 16 - dwords])
        first_be, last_be = (bench.rng.choice([0xF, 0xF, 0xE]), bench.rng.choice([0xF, 0xF, 0x7]) if dwords > 1 else 0)
        payload = [bench.rng.getrandbits(32) for _ in range(dwords)]
        await bench.request(WRITE, page + 64 * window + 4 * first, payload=payload, dwords=dwords, first_be=first_be,
                            last_be=last_be)
        got = unpack(PushedDescriptor, await with_timeout(sink.recv(), 2, "us"))
        whole = dwords == 16 and first_be & last_be == 0xF
        assert (got.ring, got.window, got.whole) == (ring, window, whole)
        assert not whole or got.data == sum(p << 32 * k for k, p in enumerate(payload))
        seen.add((dwords, whole) if dwords >= 15 else (dwords > 2, ring))
        address = bench.rng.randrange(0, abi.PUSH_BASE, 4)
        await bench.request(WRITE, address, payload=[7])
        assert unpack(RegisterWrite, await with_timeout(bench.writes.recv(), 2, "us")).address == address
    assert not bench.refused


@cocotb.test()
async def refused(dut):
    """Non-posted requests get "unsupported request", posted ones are dropped; the next request works."""
    await start_clock(dut)
    bench = Bench(dut)
    answered = [
        {"kind": READ, "dwords": 2, "address": 4, "last_be": 0xF}, {"kind": READ, "dwords": 2, "last_be": 0x7},
        {"kind": READ, "dwords": 3, "last_be": 0xF},
        {"kind": READ, "dwords": 1024, "last_be": 0xF}, {"kind": READ, "bar": 2},
        {"kind": IO_READ}, {"kind": IO_WRITE, "payload": [1]}, {"kind": FETCH_ADD, "payload": [1]},
        {"kind": SWAP, "dwords": 2, "last_be": 0xF, "payload": [1, 2]},
        {"kind": COMPARE_SWAP, "dwords": 4, "last_be": 0xF, "payload": [1] * 4},
        {"kind": LOCKED}]
    dropped = [
        {"kind": WRITE, "first_be": 0x3, "payload": [1]}, {"kind": WRITE, "first_be": 0, "payload": [1]},
        {"kind": WRITE, "bar": 1, "payload": [1]},
        {"kind": WRITE, "dwords": 2, "address": 4, "last_be": 0xF, "payload": [1, 2]},
        *[{"kind": WRITE, "dwords": n, "last_be": 0xF, "payload": [1] * n} for n in (12, 13, 256)],
        {"kind": WRITE, "address": abi.PUSH_BASE, "dwords": 17, "last_be": 0xF, "payload": [1] * 17},
        {"kind": WRITE, "address": abi.PUSH_BASE, "first_be": 0, "payload": [1]},
        {"kind": WRITE, "address": abi.PUSH_BASE, "bar": 1, "dwords": 16, "last_be": 0xF, "payload": [1] * 16},
        {"kind": MESSAGE}, {"kind": VENDOR_MESSAGE, "dwords": 2, "payload": [1, 2]}]
    cases = [(case, True) for case in answered] + [(case, False) for case in dropped]
    bench.rng.shuffle(cases)
    for case, wants_answer in cases:
        head = await bench.request(**case)
        if wants_answer:
            got = await bench.answer(head)
            assert got.status == STATUS_UNSUPPORTED and got.dwords == 0
            assert got.locked == (case["kind"] == LOCKED)
        got = await bench.answer(await bench.request(READ, 0x40))
        assert got.status == STATUS_OK
    assert bench.refused == len(cases) and not bench.writes.received


@pytest.mark.parametrize("sim", SIMULATORS)
def test_host_requests_are_served_or_rejected(sim):
    from weft.hdl.pcie.cq import RegisterShim
    simulate(RegisterShim(), name="pcie_cq", cases=__file__, sim=sim)
