"""Alignment: moves the payload of a frame to byte 0, or passes the frame unchanged."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import wire
from ..part import layouts
from ..part.layouts import BEAT_BYTES, LENGTH_WIDTH, PAYLOAD_MAX, Beat
from ..part.logic import greater_than


class Cut(enum.Enum, shape=3):
    """Part of a frame that becomes the payload stream."""

    FRAME = 0       # all of it
    WRITE = 1       # the bytes after RETH
    WRITE_ONE = 2   # after RETH and one 4-byte header
    WRITE_TWO = 3   # after RETH and two 4-byte headers
    NOTHING = 4


SKIPPED = {  # headers in the second beat; the first beat of a data packet is all headers
    Cut.WRITE: wire.DATA_HEADER_BYTES - BEAT_BYTES,
    Cut.WRITE_ONE: wire.DATA_HEADER_BYTES + wire.RSNH.size_bytes - BEAT_BYTES,
    Cut.WRITE_TWO: wire.DATA_HEADER_BYTES + wire.RSNH.size_bytes + wire.IMMDT.size_bytes - BEAT_BYTES,
}


class Align(wiring.Component):
    """Extracts the payload of frames: one 4-to-1 multiplexer per byte.

    The input is two consecutive beats per cycle, without bubbles. Latency 1,
    no stall. The RETH length decides how much is payload; the parser checks whether the frame really is that
    long, and drops the result if not. Frames with more than 4096 bytes have no output.

    Members
    -------
    fire : In(1)
        Process ``beat`` in this cycle.
    first : In(1)
        ``beat`` is the first of its frame.
    beat : In(Beat)
    ahead : In(512)
        The frame's next beat; undefined if ``beat.last``.
    cut : In(Cut)
        Valid with every beat of the frame.
    dma_length : In(32)
        RETH length, valid with the first beat.
    o : Out(stream.Signature(Beat, always_ready=True))
    """

    def __init__(self):
        super().__init__({
            "fire": In(1),
            "first": In(1),
            "beat": In(Beat),
            "ahead": In(layouts.BEAT_BITS),
            "cut": In(Cut),
            "dma_length": In(32),
            "o": Out(stream.Signature(Beat, always_ready=True)),
        })

    def elaborate(self, platform):
        m = Module()
        left = Signal(LENGTH_WIDTH)        # payload bytes not yet sent
        ends = Signal()
        two_beats = Cat(self.beat.data, self.ahead)
        m.d.comb += ends.eq(~greater_than(left, BEAT_BYTES))

        m.d.sync += self.o.valid.eq(0)
        with m.If(self.fire):
            with m.Switch(self.cut):
                for cut, skipped in SKIPPED.items():
                    with m.Case(cut):
                        m.d.sync += self.o.p.data.eq(two_beats[8 * skipped:][:layouts.BEAT_BITS])
                with m.Default():
                    m.d.sync += self.o.p.data.eq(self.beat.data)
            with m.If(self.cut == Cut.FRAME):
                m.d.sync += [self.o.valid.eq(1), self.o.p.last.eq(self.beat.last), self.o.p.empty.eq(self.beat.empty)]
            with m.Else():
                m.d.sync += [
                    self.o.valid.eq(~self.first & (left != 0)),
                    self.o.p.last.eq(ends),
                    self.o.p.empty.eq(Mux(ends, (BEAT_BYTES - left)[:6], 0)),
                ]
            with m.If(self.first):
                carries = (self.cut != Cut.NOTHING) & ~greater_than(self.dma_length, PAYLOAD_MAX)
                m.d.sync += left.eq(Mux(carries, self.dma_length[:LENGTH_WIDTH], 0))
            with m.Else():
                m.d.sync += left.eq(Mux(ends, Const(0, LENGTH_WIDTH), (left - BEAT_BYTES)[:LENGTH_WIDTH]))
        return m
