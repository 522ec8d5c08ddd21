"""Tests of the board's registers in BAR 2, the card's in BAR 0, and extended tags from the configuration space."""

import random

import cocotb
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hdl.board.bar_decoder import BOARD_BAR, BarDecoder, cc_signature, cq_signature
from weft.hdl.board.device_control import DEVICE_CONTROL, PAUSE_LOG2, DeviceControl
from weft.hdl.board.mac_side import COUNTER_BITS, EVENTS
from weft.hdl.board.registers import CONTROL, COUNTERS, ID, MAGIC, STATUS, STATUS_BITS, BoardRegisters
from weft.hdl.pcie.cq import CompletionHeader, HostDescriptor, RegisterShim
from weft.hdl.pcie.rq import RequestType
from weft.tb.sim.flow.simulate import bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import pack, unpack

OK, UNSUPPORTED = 0, 1
PAUSE = 1 << PAUSE_LOG2


class Registers(wiring.Component):
    """The blocks between the hard block and the two register blocks; the card's streams and the counters are ports."""

    def __init__(self):
        super().__init__({
            "s_axis_cq": In(cq_signature()), "m_axis_cc": Out(cc_signature()),
            "card_cq": Out(cq_signature()), "card_cc": In(cc_signature()),
            "status": In(len(STATUS_BITS)), "loopback": Out(1), "mac_reset": Out(1),
            "counter_address": Out(range(len(EVENTS))), "counter_stb": Out(1),
            "counter_data": In(COUNTER_BITS), "counter_ack": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.bars, m.submodules.shim, m.submodules.registers = bars, shim, registers = (
            BarDecoder(), RegisterShim(windows=False), BoardRegisters())
        connect(m, bars.board_cq, shim.s_axis_cq)
        connect(m, shim.m_axis_cc, bars.board_cc)
        connect(m, shim.registers, registers.bus)
        for name in ("s_axis_cq", "m_axis_cc", "card_cq", "card_cc"):
            connect(m, getattr(bars, name), flipped(getattr(self, name)))
        for name in ("status", "counter_data", "counter_ack"):
            m.d.comb += getattr(registers, name).eq(getattr(self, name))
        for name in ("loopback", "mac_reset", "counter_address", "counter_stb"):
            m.d.comb += getattr(self, name).eq(getattr(registers, name))
        return m


class Host:
    """Sends requests like the hard block, one after the other, and takes the completions in order."""

    def __init__(self, dut, rng):
        self.dut, self.rng, self.answers = dut, rng, []
        cocotb.start_soon(self._take())

    async def ask(self, bar, address, *, data=None, tag=0):
        dut, head = self.dut, {"address": address // 4, "dwords": 2, "bar": bar, "tag": tag, "requester_id": 0x1234,
                               "kind": RequestType.MEMORY_READ if data is None else RequestType.MEMORY_WRITE}
        size = HostDescriptor.as_shape().size
        dut.s_axis_cq__tdata.value = pack(HostDescriptor, **head) | (data or 0) << size
        dut.s_axis_cq__tuser.value = 0xF | 0xF << 8
        dut.s_axis_cq__tlast.value = dut.s_axis_cq__tvalid.value = 1
        await RisingEdge(dut.clk)
        while not int(dut.s_axis_cq__tready.value):
            await RisingEdge(dut.clk)
        dut.s_axis_cq__tvalid.value = 0

    async def _take(self):
        dut, size, offered, ready = self.dut, CompletionHeader.as_shape().size, None, 0
        while True:
            ready = self.rng.getrandbits(1)
            dut.m_axis_cc__tready.value = ready
            await RisingEdge(dut.clk)
            if not int(dut.m_axis_cc__tvalid.value):
                assert offered is None, "an answer was withdrawn"
                continue
            word = int(dut.m_axis_cc__tdata.value)
            assert offered in (None, word), "an answer changed before it was taken"
            offered = None if ready else word
            if ready:
                head = unpack(CompletionHeader, word & ((1 << size) - 1))
                self.answers.append((head.tag, head.status, (word >> size) & ((1 << 64) - 1)))

    async def read(self, address, bar=BOARD_BAR, tag=7):
        before = len(self.answers)
        await self.ask(bar, address, tag=tag)
        while len(self.answers) == before:
            await RisingEdge(self.dut.clk)
        assert self.answers[-1][0] == tag
        return self.answers[-1][1:]


async def start(dut):
    await start_clock(dut)
    return Host(dut, random.Random(bench_seed()))


@cocotb.test()
async def identity_control_and_status(dut):
    host = await start(dut)
    assert await host.read(ID) == (OK, MAGIC)
    for value in (1, 2, 3, 0):
        await host.ask(BOARD_BAR, CONTROL, data=value)
        assert await host.read(CONTROL) == (OK, value)
        assert (int(dut.loopback.value), int(dut.mac_reset.value)) == (value & 1, value >> 1)
    dut.status.value = wanted = host.rng.getrandbits(len(STATUS_BITS))
    await ClockCycles(dut.clk, 1)
    assert await host.read(STATUS) == (OK, wanted)
    assert await host.read(0x018) == (OK, 0)
    assert await host.read(COUNTERS + 8 * len(EVENTS)) == (OK, 0)


@cocotb.test()
async def counters_are_requested(dut):
    """A counter read without response ends as "unsupported request"; the late response is dropped."""
    host = await start(dut)
    random_delay, delay = True, 0

    async def mac():
        while True:
            await RisingEdge(dut.clk)
            if int(dut.counter_stb.value):
                value = 1000 + int(dut.counter_address.value)
                await ClockCycles(dut.clk, host.rng.randrange(1, 12) if random_delay else delay)
                dut.counter_data.value, dut.counter_ack.value = value, 1
                await ClockCycles(dut.clk, 1)
                dut.counter_ack.value = 0

    cocotb.start_soon(mac())
    for index in range(len(EVENTS)):
        assert await host.read(COUNTERS + 8 * index) == (OK, 1000 + index)
    random_delay, delay = False, 300
    assert (await host.read(COUNTERS))[0] == UNSUPPORTED
    assert (await host.read(COUNTERS + 8))[0] == UNSUPPORTED
    assert await host.read(ID) == (OK, MAGIC)
    random_delay = True
    await ClockCycles(dut.clk, 400)
    assert await host.read(COUNTERS + 16) == (OK, 1002)
    assert COUNTER_BITS == len(dut.counter_data)


@cocotb.test()
async def card_sees_its_registers_only(dut):
    """Requests to BAR 0 and messages go to the card; completions of both register blocks come out whole."""
    host = await start(dut)
    seen, answered = [], 0
    rng = host.rng

    async def card():
        nonlocal answered
        waiting, size = [], HostDescriptor.as_shape().size
        while True:
            ready, offers = rng.getrandbits(1), bool(waiting)
            dut.card_cq__tready.value = ready
            dut.card_cc__tvalid.value = offers
            if offers:
                dut.card_cc__tdata.value = pack(CompletionHeader, tag=waiting[0])
                dut.card_cc__tlast.value = 1
            await RisingEdge(dut.clk)
            if offers and int(dut.card_cc__tready.value):
                waiting.pop(0)
                answered += 1
            if ready and int(dut.card_cq__tvalid.value):
                head = unpack(HostDescriptor, int(dut.card_cq__tdata.value) & ((1 << size) - 1))
                seen.append((head.bar, head.tag))
                waiting.append(head.tag)

    cocotb.start_soon(card())
    wanted = []
    for tag in range(60):
        bar = rng.choice((0, BOARD_BAR))
        wanted.append((bar, tag))
        await host.ask(bar, ID, tag=tag)
    while len(host.answers) < len(wanted):
        await RisingEdge(dut.clk)
    own = [(bar, tag) for bar, tag in wanted if bar == 0]
    assert seen == own and 0 < len(own) < len(wanted)
    assert sorted(tag for tag, *_ in host.answers) == list(range(60))
    assert [tag for tag, _, word in host.answers if word == MAGIC] == [tag for bar, tag in wanted if bar == BOARD_BAR]


def test_registers():
    simulate(Registers(), name="board_registers", cases=__file__, tests="identity|counters|the_card")


@cocotb.test()
async def extended_tags_follow_device_control(dut):
    """Every write of the host to Device Control takes effect after a pause.

    A configuration access may take any time, and no pause is shorter than its minimum.
    """
    await start_clock(dut)
    rng = random.Random(bench_seed())
    control, pauses = 0, []

    async def configuration():
        pause = 0
        while True:
            await RisingEdge(dut.clk)
            pause += 1
            if int(dut.cfg_mgmt_read.value):
                pauses.append(pause)
                pause = 0
                assert int(dut.cfg_mgmt_addr.value) == DEVICE_CONTROL // 4
                await ClockCycles(dut.clk, rng.randrange(1, 20))
                dut.cfg_mgmt_read_data.value, dut.cfg_mgmt_read_write_done.value = control, 1
                await ClockCycles(dut.clk, 1)
                dut.cfg_mgmt_read_write_done.value = 0

    cocotb.start_soon(configuration())
    for bit in (1, 0, 1, 1, 0):
        control = rng.getrandbits(32) & ~(1 << 8) | bit << 8
        await ClockCycles(dut.clk, 2 * (PAUSE + 24))
        assert int(dut.cfg_ext_tag_enable.value) == bit
    assert len(pauses) >= 5 and min(pauses) >= PAUSE, pauses


def test_device_control():
    simulate(DeviceControl(), name="board_device_control", cases=__file__, tests="extended")
