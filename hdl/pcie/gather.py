"""Joins pieces of lines into one contiguous byte stream."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..layouts import BEAT_BITS, BEAT_BYTES, Beat
from ..logic import above
from ..stream import Skid
from .rotate import Rotate


class Fragment(data.Struct):
    """Some bytes of a line: where they start is known to whoever computed ``shift``."""

    data: BEAT_BITS
    shift: 6     # first byte of the fragment in the line, minus ``fill``
    fill: 6      # bytes of the packet in the unfinished output beat before this fragment
    total: 7     # ``fill`` plus the bytes of this fragment, 1 to 127
    end: 1       # ends the packet
    error: 1     # the packet is bad


class Gather(wiring.Component):
    """Byte aligner. One fragment per cycle and one beat per cycle; the last fragment of a packet
    takes two cycles when it fills one beat and begins another. Four cycles of latency.

    Members
    -------
    i : In(stream.Signature(Fragment))
    o : Out(stream.Signature(Beat))
    """

    i: In(stream.Signature(Fragment))
    o: Out(stream.Signature(Beat))

    def elaborate(self, platform):
        m = Module()
        # `emit`: fills a beat; `spill`: begins another one, too. Both are known before the bytes are turned.
        side = data.StructLayout({"fill": 6, "total": 7, "end": 1, "error": 1, "emit": 1, "spill": 1})
        m.submodules.rotate = rotate = Rotate(side)
        m.submodules.skid = skid = Skid(Beat)
        connect(m, skid.o, flipped(self.o))
        fragment = self.i.p
        m.d.comb += [
            rotate.i.valid.eq(self.i.valid),
            rotate.i.p.data.eq(fragment.data),
            rotate.i.p.shift.eq(fragment.shift),
            rotate.i.p.side.eq(Cat(fragment.fill, fragment.total, fragment.end, fragment.error,
                                   fragment.end | above(fragment.total, BEAT_BYTES - 1),
                                   fragment.end & above(fragment.total, BEAT_BYTES))),
            self.i.ready.eq(rotate.i.ready),
        ]

        kept = Signal(BEAT_BITS)         # the unfinished beat, or the rest of a packet when `rest`
        rest, rest_error, error = Signal(), Signal(), Signal()
        rest_empty = Signal(6)
        merged = Signal(BEAT_BITS)
        now = rotate.o.p.side
        emit, spill, bad = now.emit, now.spill, Signal()
        m.d.comb += [
            merged.eq(Cat(Mux(now.fill > j, kept.word_select(j, 8), rotate.o.p.data.word_select(j, 8))
                          for j in range(BEAT_BYTES))),
            bad.eq(now.error | error),
            rotate.o.ready.eq(~rest & (skid.i.ready | ~emit)),
        ]
        with m.If(rest):
            m.d.comb += [
                skid.i.valid.eq(1),
                skid.i.p.data.eq(kept),
                skid.i.p.empty.eq(rest_empty),
                skid.i.p.last.eq(1),
                skid.i.p.error.eq(rest_error),
            ]
            with m.If(skid.i.ready):
                m.d.sync += rest.eq(0)
        with m.Else():
            m.d.comb += [
                skid.i.valid.eq(rotate.o.valid & emit),
                skid.i.p.data.eq(merged),
                skid.i.p.last.eq(now.end & ~spill),
                skid.i.p.empty.eq(Mux(now.end & ~spill, (-now.total)[:6], 0)),
                skid.i.p.error.eq(now.end & ~spill & bad),
            ]
            with m.If(rotate.o.valid & rotate.o.ready):
                m.d.sync += [
                    kept.eq(Mux(emit, rotate.o.p.data, merged)),
                    error.eq(bad & ~now.end),
                    rest.eq(spill),
                    rest_empty.eq(-now.total),
                    rest_error.eq(bad),
                ]
        return m
