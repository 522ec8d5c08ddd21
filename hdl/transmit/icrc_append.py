"""Appends the ICRC to frames."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.wire import ICRC_BYTES
from ..part import crc32
from ..part.icrc import Icrc
from ..part.layouts import BEAT_BYTES, Beat
from ..part.stream import Fifo

DELAY = 16  # beats waiting for the ICRC of their frame


class IcrcAppend(wiring.Component):
    """Appends the ICRC to each frame.

    One beat per cycle out, no bubble between frames. A frame whose last beat has fewer than four
    free bytes gets one beat more. Latency of the first beat 1, of the last beat 8 cycles.

    Members
    -------
    i : In(stream.Signature(Beat))
        Frames without ICRC; unused bytes of the last beat are zero, and their number is 2 modulo 4, because of the
        length of the headers.
    o : Out(stream.Signature(Beat))
        ``error`` is passed on.
    busy : Out(1)
        A part of a frame is stored.
    """

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(Beat)),
            "o": Out(stream.Signature(Beat)),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.icrc = icrc = Icrc()
        m.submodules.delay = delay = Fifo(Beat, DELAY)
        # Each waiting result belongs to a last beat in the delay: there is always space.
        m.submodules.results = results = Fifo(crc32.WIDTH, DELAY)
        wiring.connect(m, wiring.flipped(self.i), delay.i)
        m.d.comb += [
            self.busy.eq(delay.o.valid),
            icrc.i.payload.eq(self.i.payload),
            icrc.i.valid.eq(self.i.valid & self.i.ready),
            results.i.payload.eq(icrc.o.payload),
            results.i.valid.eq(icrc.o.valid),
        ]

        extra = Signal()   # the additional beat after the last one
        beat, crc = delay.o.p, results.o.payload
        fits = Signal()
        half = 8 * (ICRC_BYTES // 2)
        m.d.comb += [
            fits.eq(beat.empty >= ICRC_BYTES),
            self.o.valid.eq(delay.o.valid & (~beat.last | results.o.valid)),
            self.o.payload.eq(beat),
        ]
        with m.If(beat.last):
            with m.If(extra):
                m.d.comb += [
                    self.o.p.data.eq(crc[half:]),
                    self.o.p.empty.eq(BEAT_BYTES - ICRC_BYTES // 2),
                ]
            with m.Else():
                m.d.comb += [
                    self.o.p.last.eq(fits),
                    self.o.p.empty.eq(0),
                ]
                with m.If(fits):
                    m.d.comb += self.o.p.empty.eq(beat.empty - ICRC_BYTES)
                with m.Switch(beat.empty):
                    for empty in range(2, BEAT_BYTES, ICRC_BYTES):
                        at = 8 * (BEAT_BYTES - empty)
                        width = min(8 * ICRC_BYTES, 8 * empty)
                        with m.Case(empty):
                            m.d.comb += self.o.p.data[at:at + width].eq(crc[:width])
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += extra.eq(beat.last & ~extra & ~fits)
        m.d.comb += [
            delay.o.ready.eq(self.o.ready & self.o.valid & (~beat.last | extra | fits)),
            results.o.ready.eq(delay.o.ready & beat.last),
        ]
        return m
