"""Two unrelated clocks around the crossings of the card, the card's ends of the streams, and a MAC."""

import random
from collections import Counter

import cocotb
from amaranth.hdl import DomainRenamer, Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hdl.mac.edge import RX_USER_WIDTH, TX_USER_WIDTH, MacTx
from weft.hdl.mac.pause_crossing import PauseCrossing
from weft.hdl.mac.pause_gate import PauseGate
from weft.hdl.mac.rx_crossing import RxCrossing
from weft.hdl.part.axis import axis_signature
from weft.hdl.part.layouts import BEAT_BITS, BEAT_BYTES, Beat, PauseFrame
from weft.hdl.transmit.send_crossing import SendCrossing
from weft.tb.sim.stream.clock import phase_ps, start_clocks
from weft.tb.sim.stream.payload import pack, unpack
from weft.tb.test.hdl.mac.line import LineSink, LineSource, beats_of

CARD_PS, MAC_PS = 4000, 3103       # 250 MHz and 322.27 MHz
RESET_CYCLES, CUT_CYCLES = 20, 3000
BUFFER_BEATS = 128
STROBES = {"too_long": "clk", "dropped": "mac_clk", "aborted": "mac_clk", "rx_dropped": "mac_clk"}


class BothCrossings(wiring.Component):
    """The buffer in front of the MAC, the crossing after it, and the path of pauses between them, as in the card.

    ``core_reset`` resets the card's subsystems, including the buffer; the other ports are those of
    :class:`SendCrossing`, :class:`RxCrossing` and :class:`PauseCrossing`.
    """

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(Beat)), "o": Out(stream.Signature(Beat)), "core_reset": In(1),
            "i_pause": In(stream.Signature(PauseFrame)), "o_control": Out(stream.Signature(Beat)), "pause": In(1),
            "hold": In(1), "sending": Out(1), "empty": Out(1), "too_long": Out(1), "stalled": Out(1),
            "up": In(1), "dropped": Out(1), "aborted": Out(1), "rx_dropped": Out(1),
            "m_axis": Out(axis_signature(data_width=BEAT_BITS, user_width=TX_USER_WIDTH)),
            "s_axis": In(axis_signature(data_width=BEAT_BITS, user_width=RX_USER_WIDTH))})

    def elaborate(self, platform):
        m = Module()
        buffer, edge, rx = SendCrossing(BUFFER_BEATS), DomainRenamer("mac")(MacTx()), RxCrossing()
        m.submodules.buffer = ResetInserter(self.core_reset)(buffer)
        m.submodules.edge, m.submodules.rx = edge, rx
        connect(m, flipped(self.i), buffer.i)
        m.submodules.gate, m.submodules.pauses = gate, pauses = DomainRenamer("mac")(PauseGate()), PauseCrossing()
        connect(m, buffer.o, gate.i)
        connect(m, gate.o, edge.i)
        connect(m, flipped(self.i_pause), pauses.i)
        connect(m, pauses.o, gate.i_pause)
        connect(m, edge.m_axis, flipped(self.m_axis))
        connect(m, flipped(self.s_axis), rx.s_axis)
        connect(m, rx.o, flipped(self.o))
        connect(m, rx.o_control, flipped(self.o_control))
        m.d.comb += [edge.hold.eq(0), self.rx_dropped.eq(rx.dropped), buffer.hold.eq(self.hold), buffer.up.eq(self.up),
                     buffer.pause.eq(self.pause),
                     *[getattr(self, name).eq(getattr(buffer, name))
                       for name in ("sending", "empty", "too_long", "stalled", "dropped", "aborted")]]
        return m


class CardSide:
    """The card's ends: frames to send, and received frames, with MAC control frames in a separate list.

    The card is always ready; with ``busy``, the stub is not ready with this chance per cycle, except for control
    frames.
    """

    def __init__(self, dut, rng):
        self._dut, self._rng, self.received, self.control, self.busy = dut, rng, [], [], 0.0
        cocotb.start_soon(self._receive())
        cocotb.start_soon(self._receive_control())

    async def _receive(self):
        dut, frame, edge = self._dut, b"", RisingEdge(self._dut.clk)
        dut.o__ready.value = ready = 1
        while True:
            wanted = int(not (self.busy and self._rng.random() < self.busy))
            if wanted != ready:
                dut.o__ready.value = ready = wanted
            await edge
            if int(dut.rst.value):
                frame = b""
            elif ready and int(dut.o__valid.value):
                beat = unpack(Beat, int(dut.o__payload.value))
                frame += beat.data.to_bytes(BEAT_BYTES, "little")[:BEAT_BYTES - beat.empty]
                if beat.last:
                    self.received.append((frame, beat.error))
                    frame = b""

    async def _receive_control(self):
        dut, frame, edge = self._dut, b"", RisingEdge(self._dut.clk)
        while True:
            await edge
            if int(dut.rst.value):
                frame = b""
            elif int(dut.o_control__valid.value):
                beat = unpack(Beat, int(dut.o_control__payload.value))
                frame += beat.data.to_bytes(BEAT_BYTES, "little")[:BEAT_BYTES - beat.empty]
                if beat.last:
                    self.control.append((frame, beat.error))
                    frame = b""

    async def ask(self, **pause):
        """Request a pause; return when it was taken."""
        dut, edge = self._dut, RisingEdge(self._dut.clk)
        dut.i_pause__payload.value, dut.i_pause__valid.value = pack(PauseFrame, **pause), 1
        await edge
        while not int(dut.i_pause__ready.value):
            await edge
        dut.i_pause__valid.value = 0

    async def send(self, frames, pause=0.0):
        """Offer a list of ``(bytes, error)``, with pauses also inside frames.

        Returns the cycles from first to last beat.
        """
        dut, edge, cycles = self._dut, RisingEdge(self._dut.clk), 0
        for frame, error in frames:
            for data, keep, last in beats_of(frame):
                while pause and self._rng.random() < pause:
                    dut.i__valid.value = 0
                    await edge
                    cycles += 1
                dut.i__payload.value = pack(Beat, data=data, empty=BEAT_BYTES - keep.bit_count(), last=last,
                                            error=error & last)
                dut.i__valid.value = 1
                await edge
                cycles += 1
                while not int(dut.i__ready.value):
                    await edge
                    cycles += 1
        dut.i__valid.value = 0
        return cycles


class Bench:
    """Clocks, card side and MAC. ``ppm``: deviation of the MAC's clock from its nominal frequency.

    Attributes
    ----------
    card : CardSide
    sink : LineSink
    source : LineSource
    seen : Counter
        Number of cycles of each of ``STROBES``.
    """

    def __init__(self, dut, seed, *, ppm=0, pause=0.0):
        self.dut, self.rng, self.seen = dut, random.Random(seed), Counter()
        self.mac_ps = round(MAC_PS * (1 - ppm * 1e-6))
        self._pause = pause

    async def start(self):
        dut = self.dut
        await start_clocks(dut, {
            "clk": (CARD_PS, phase_ps(self.rng, CARD_PS, odd=False)),
            "mac_clk": (self.mac_ps + self.mac_ps % 2, phase_ps(self.rng, MAC_PS, odd=True)),
        }, ("rst", "mac_rst"))
        self.card = CardSide(dut, self.rng)
        period = self.mac_ps / 1000
        self.sink = LineSink(dut, "m_axis", dut.mac_clk, period, pause=self._pause, rng=self.rng)
        self.source = LineSource(dut, "s_axis", dut.mac_clk, period)
        dut.up.value = 1
        await ClockCycles(dut.clk, 64)
        for name, clk in STROBES.items():
            cocotb.start_soon(self._count(name, getattr(dut, clk)))
        return self

    async def _count(self, name, clk):
        edge, strobe = RisingEdge(clk), getattr(self.dut, name)
        while True:
            await edge
            self.seen[name] += int(strobe.value)

    async def reset_subsystems(self, sending):
        """Hold the buffer until the MAC has no frame in progress, and reset the subsystems.

        ``sending``, a task that gives frames to the buffer, is cancelled. Returns the cycles waited, and the number of
        frames that the MAC has received in all.
        """
        dut = self.dut
        dut.hold.value = 1
        await RisingEdge(dut.clk)
        for waited in range(CUT_CYCLES):        # noqa: B007 (it is returned)
            await RisingEdge(dut.clk)
            if not int(dut.sending.value):
                break
        else:
            raise AssertionError("the MAC reports an unfinished frame for ever")
        sending.cancel()
        dut.i__valid.value = 0
        dut.core_reset.value = 1
        await RisingEdge(dut.clk)
        dut.core_reset.value = dut.hold.value = 0
        return waited, len(self.sink.frames)

    async def reset(self, side):
        """Reset the card or the MAC, and wait until frames pass again."""
        clk, rst = (self.dut.clk, self.dut.rst) if side == "card" else (self.dut.mac_clk, self.dut.mac_rst)
        rst.value = 1
        await ClockCycles(clk, RESET_CYCLES)
        rst.value = 0
        await ClockCycles(self.dut.clk, 64)
