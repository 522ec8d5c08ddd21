"""Tests of the register block against abi: every register, every access."""

import random
from collections import Counter

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import RegisterWrite
from weft.hdl.part.registers import group_of
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.test.rounds import rounds

Access = abi.Access
REGISTERS = {register.name: register for register in abi.REGISTERS}
bench_test = cocotb.test(timeout_time=400, timeout_unit="us")


def port(register):
    """Return the name of the signal of a register."""
    return f"{group_of(register)}__{register.name}"


class Bus:
    """The host side of the register bus, with the MSI-X table and the counters that it reaches."""

    def __init__(self, dut):
        self.dut = dut
        self.counters = [0] * len(abi.COUNTERS)
        self.msix = {}
        self.doorbells = []
        cocotb.start_soon(self._serve())

    async def write(self, address, value, *, wide=False):
        self.dut.bus__write__payload.value = RegisterWrite.const(
            {"address": address, "data": value, "wide": wide}).as_bits()
        self.dut.bus__write__valid.value = 1
        await RisingEdge(self.dut.clk)
        assert int(self.dut.bus__write__ready.value)
        self.dut.bus__write__valid.value = 0

    async def read(self, address):
        """Return the aligned 64-bit word."""
        self.dut.bus__read_address.value, self.dut.bus__read_stb.value = address, 1
        await RisingEdge(self.dut.clk)
        self.dut.bus__read_stb.value = 0
        for cycles in range(5):
            if int(self.dut.bus__read_ack.value):
                assert cycles <= 4
                return int(self.dut.bus__read_data.value)
            await RisingEdge(self.dut.clk)
        raise AssertionError("no answer")

    async def read32(self, address):
        return await self.read(address) >> 8 * (address & 4) & 0xFFFFFFFF

    async def settle(self):
        for _ in range(3):
            await RisingEdge(self.dut.clk)

    async def _serve(self):
        """Serve memories with a latency of one cycle, and take the doorbells."""
        dut = self.dut
        bells = [r for r in abi.REGISTERS if r.access is Access.DOORBELL]
        counter_index, msix_address = 0, 0
        while True:
            await RisingEdge(dut.clk)
            if int(dut.msix__w_stb.value):
                self._msix_write()
            for r in bells:
                if int(getattr(dut, f"{port(r)}_stb").value):
                    self.doorbells.append((r.name, int(getattr(dut, port(r)).value)))
            counter_index, msix_address = int(dut.counters__index.value), int(dut.msix__r_address.value)
            dut.counters__data.value = self.counters[counter_index] if counter_index < len(self.counters) else 0
            assert not msix_address & 7
            dut.msix__r_data.value = self.msix.get(msix_address, 0)

    def _msix_write(self):
        address, mask = int(self.dut.msix__w_address.value), int(self.dut.msix__w_mask.value)
        assert not address & 7
        bits = sum(0xFF << 8 * k for k in range(8) if mask >> k & 1)
        self.msix[address] = self.msix.get(address, 0) & ~bits | int(self.dut.msix__w_data.value) & bits


@bench_test
async def registers_keep_written_values(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    bus = Bus(dut)
    expected = {r.name: r.reset for r in abi.REGISTERS if r.access is Access.RW}
    by_word = {}
    for r in abi.REGISTERS:
        if r.access is Access.RW:
            assert int(getattr(dut, port(r)).value) == r.reset
            by_word.setdefault(r.offset & ~7, []).append(r)
    halves = [r.offset + k for r in abi.REGISTERS if r.access is Access.RW for k in range(0, r.width // 8, 4)]
    for _ in range(400):
        if rng.random() < 0.7:
            address, value, wide = rng.choice(halves), rng.getrandbits(32), False
            updates = {address: value}
        else:
            address, value, wide = rng.choice(list(by_word)), rng.getrandbits(64), True
            updates = {address: value & 0xFFFFFFFF, address + 4: value >> 32}
        await bus.write(address, value, wide=wide)
        for at, word in updates.items():
            for r in by_word[at & ~7]:
                if r.offset <= at < r.offset + r.width // 8:
                    shift = 8 * (at - r.offset)
                    expected[r.name] = expected[r.name] & ~(0xFFFFFFFF << shift) | word << shift
        if rng.random() < 0.3:
            await bus.settle()
            for name, value in expected.items():
                assert int(getattr(dut, port(REGISTERS[name])).value) == value, name
            word = rng.choice(list(by_word))
            got = await bus.read(word)
            for r in by_word[word]:
                assert got >> 8 * (r.offset & 7) & ((1 << r.width) - 1) == expected[r.name], r.name


@bench_test
async def hardware_values_are_read_and_cannot_be_written(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    bus = Bus(dut)
    drawn = {r: rng.getrandbits(r.width) for r in abi.REGISTERS if r.access is Access.RO}
    for flipped in (0, (1 << 64) - 1):      # every bit is read as 0 and as 1
        values = {r: (value ^ flipped) % (1 << r.width) for r, value in drawn.items()}
        for r, value in values.items():
            getattr(dut, port(r)).value = value
        for r, value in values.items():
            await bus.write(r.offset, rng.getrandbits(32))
            if r.width == 64:
                assert await bus.read(r.offset) == value
            assert await bus.read32(r.offset) == value & 0xFFFFFFFF, r.name
    assert await bus.read(0x7F8) == 0 and await bus.read(0x4000) == 0, "no register there"


@bench_test
async def doorbells_ring_once(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    bus = Bus(dut)
    expected, rung = [], Counter()
    doorbells = [r for r in abi.REGISTERS if r.access is Access.DOORBELL]
    for _ in rounds(rung, [r.name for r in doorbells], least=200, most=2000):
        r = rng.choice(doorbells)
        value = rng.getrandbits(r.width)
        if r.width == 64 and rng.random() < 0.5:
            await bus.write(r.offset + rng.choice([0, 4]), value & 0xFFFFFFFF)  # half a doorbell has no effect
            continue
        await bus.write(r.offset, value, wide=r.width == 64)
        expected.append((r.name, value))
        rung[r.name] += 1
        assert rng.random() > 0.1 or await bus.read32(r.offset) == 0
    await bus.settle()
    assert bus.doorbells == expected


@bench_test
async def counter_halves_belong_together(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    bus = Bus(dut)
    for index in range(len(abi.COUNTERS)):
        drawn, at = rng.getrandbits(abi.COUNTER_WIDTH), abi.COUNTER_BASE + 8 * index
        for value in (drawn, drawn ^ (1 << abi.COUNTER_WIDTH) - 1):
            bus.counters[index] = value
            assert await bus.read(at) == value
            low = await bus.read32(at)
            bus.counters[index] = rng.getrandbits(abi.COUNTER_WIDTH)
            assert low | await bus.read32(at + 4) << 32 == value
    assert await bus.read(abi.COUNTER_BASE + 8 * len(abi.COUNTERS)) == 0


@bench_test
async def msix_range_is_passed_on(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    bus = Bus(dut)
    expected = {}
    for _ in range(100):
        word = rng.choice([abi.MSIX_TABLE_OFFSET, abi.MSIX_TABLE_OFFSET + 8, abi.MSIX_PBA_OFFSET, abi.BAR_BYTES - 8])
        half, wide, value = rng.choice([0, 4]), rng.random() < 0.5, rng.getrandbits(64)
        await bus.write(word if wide else word + half, value if wide else value & 0xFFFFFFFF, wide=wide)
        if wide:
            expected[word] = value
        else:
            kept = expected.get(word, 0) & ~(0xFFFFFFFF << 8 * half)
            expected[word] = kept | (value & 0xFFFFFFFF) << 8 * half
        await bus.settle()
        assert await bus.read(word) == expected[word]
    assert bus.msix == expected


@pytest.mark.parametrize("sim", SIMULATORS)
def test_registers_follow_the_contract(sim):
    from weft.hdl.csr import Csr
    simulate(Csr(preset("test")), name="csr", cases=__file__, sim=sim)
