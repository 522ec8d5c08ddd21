"""Two unrelated clocks around the MAC's side of the board, and the card's ends of its streams."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer

from weft.hdl.board.mac_side import LEVELS
from weft.hdl.layouts import BEAT_BYTES
from weft.tb.board.mac import LineSink, LineSource, beats_of
from weft.tb.flow.clock import ports

CARD_PS, MAC_PS = 4000, 3103       # 250 MHz and 322.27 MHz
RESET_CYCLES = 20


class CardSide:
    """The card's ends: frames to send, and frames that arrived.

    The card is always ready; with ``busy``, the chance per cycle that this one is not.
    """

    def __init__(self, dut, rng):
        self._dut, self._rng, self.received, self.busy = dut, rng, [], 0.0
        cocotb.start_soon(self._receive())

    async def _receive(self):
        dut, frame, edge = self._dut, b"", RisingEdge(self._dut.clk)
        dut.m_axis_rx__tready.value = ready = 1
        while True:
            wanted = int(not (self.busy and self._rng.random() < self.busy))
            if wanted != ready:
                dut.m_axis_rx__tready.value = ready = wanted
            await edge
            if int(dut.rst.value):
                frame = b""
            elif ready and int(dut.m_axis_rx__tvalid.value):
                count = int(dut.m_axis_rx__tkeep.value).bit_count()
                frame += int(dut.m_axis_rx__tdata.value).to_bytes(BEAT_BYTES, "little")[:count]
                if int(dut.m_axis_rx__tlast.value):
                    self.received.append((frame, int(dut.m_axis_rx__tuser.value)))
                    frame = b""

    async def send(self, frames, pause=0.0):
        """Offer ``(bytes, error)`` each; pauses also inside frames. Returns the cycles from first to last beat."""
        dut, edge, cycles = self._dut, RisingEdge(self._dut.clk), 0
        for frame, error in frames:
            for beat, keep, last in beats_of(frame):
                while pause and self._rng.random() < pause:
                    dut.s_axis_tx__tvalid.value = 0
                    await edge
                    cycles += 1
                dut.s_axis_tx__tdata.value, dut.s_axis_tx__tkeep.value = beat, keep
                dut.s_axis_tx__tlast.value, dut.s_axis_tx__tuser.value = last, error & last
                dut.s_axis_tx__tvalid.value = 1
                await edge
                cycles += 1
                while not int(dut.s_axis_tx__tready.value):
                    await edge
                    cycles += 1
        dut.s_axis_tx__tvalid.value = 0
        return cycles


class Bench:
    """All of it. ``ppm`` is how much faster the MAC's clock is than it should be."""

    def __init__(self, dut, seed, *, ppm=0, pause=0.0):
        self.dut, self.rng = dut, random.Random(seed)
        self.mac_ps = round(MAC_PS * (1 - ppm * 1e-6))
        self._pause = pause

    async def start(self):
        dut = self.dut
        for name, (way, _) in ports().items():
            if way == "input":
                getattr(dut, name).value = 0
        dut.rst.value, dut.mac_rst.value = 1, 1
        # A first edge before the inputs have a value would leave the toggles, which have no reset, unknown for ever.
        await Timer(CARD_PS, "ps")
        cocotb.start_soon(Clock(dut.clk, CARD_PS, unit="ps").start())
        await Timer(self.rng.randrange(1, MAC_PS), "ps")
        cocotb.start_soon(Clock(dut.mac_clk, self.mac_ps + self.mac_ps % 2, unit="ps").start())
        self.card = CardSide(dut, self.rng)
        period = self.mac_ps / 1000
        self.sink = LineSink(dut, "m_axis_mac", dut.mac_clk, period, pause=self._pause, rng=self.rng)
        self.source = LineSource(dut, "s_axis_mac", dut.mac_clk, period)
        await ClockCycles(dut.mac_clk, RESET_CYCLES)
        dut.mac_rst.value = 0
        await ClockCycles(dut.clk, 3)
        dut.rst.value = 0
        dut.levels.value = 1 << LEVELS.index("rx_aligned")
        await ClockCycles(dut.clk, 64)
        return self

    async def reset(self, side):
        """Reset the card or the MAC, and wait until frames go through again."""
        clk, rst = (self.dut.clk, self.dut.rst) if side == "card" else (self.dut.mac_clk, self.dut.mac_rst)
        rst.value = 1
        await ClockCycles(clk, RESET_CYCLES)
        rst.value = 0
        await ClockCycles(self.dut.clk, 64)

    async def counter(self, index):
        """A counter, as the board's registers ask for it."""
        dut = self.dut
        dut.counter_address.value, dut.counter_stb.value = index, 1
        await ClockCycles(dut.clk, 1)
        dut.counter_stb.value = 0
        while True:
            await RisingEdge(dut.clk)
            if int(dut.counter_ack.value):
                return int(dut.counter_data.value)
