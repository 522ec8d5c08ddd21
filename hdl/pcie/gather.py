"""Byte aligner: joins fragments of lines into one contiguous byte stream."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..contract.params import exact_log2
from ..part.layouts import BEAT_BITS, BEAT_BYTES, Beat
from ..part.logic import greater_than
from ..part.stages import SkidBuffer
from .rotate import Rotate

GROUP = 4       # bytes that are selected one by one after the rotation


class Fragment(data.Struct):
    """Some bytes of a line; the position of the first one is included in ``shift``."""

    data: BEAT_BITS
    shift: 6     # first byte of the fragment in the line, minus ``fill``
    fill: 6      # bytes of the packet in the unfinished output beat before this fragment
    total: 7     # ``fill`` plus the bytes of this fragment, 1 to 127
    end: 1       # ends the packet
    error: 1     # the packet is bad


class Gather(wiring.Component):
    """Byte aligner.

    One fragment per cycle and one beat per cycle; the last fragment of a packet
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
        # Computed before the rotation. `whole`: groups of bytes below `fill`; `more`: bytes of the next group below it,
        # as a thermometer code. `emit`: the fragment fills a beat; `spill`: it begins another one, too.
        side = data.StructLayout({"whole": BEAT_BYTES // GROUP - 1, "more": GROUP - 1, "total": 7, "end": 1, "error": 1,
                                  "emit": 1, "spill": 1})
        m.submodules.rotate = rotate = Rotate(side)
        m.submodules.skid = skid = SkidBuffer(Beat)
        connect(m, skid.o, flipped(self.o))
        fragment, come, group_bits = self.i.p, rotate.i.p.side, exact_log2(GROUP)
        m.d.comb += [
            rotate.i.valid.eq(self.i.valid),
            rotate.i.p.data.eq(fragment.data),
            rotate.i.p.shift.eq(fragment.shift),
            come.whole.eq(Cat(fragment.fill[group_bits:] > k for k in range(BEAT_BYTES // GROUP - 1))),
            come.more.eq(Cat(fragment.fill[:group_bits] > k for k in range(GROUP - 1))),
            come.total.eq(fragment.total), come.end.eq(fragment.end), come.error.eq(fragment.error),
            come.emit.eq(fragment.end | greater_than(fragment.total, BEAT_BYTES - 1)),
            come.spill.eq(fragment.end & greater_than(fragment.total, BEAT_BYTES)),
            self.i.ready.eq(rotate.i.ready),
        ]

        kept = Signal(BEAT_BITS)         # the unfinished beat, or the rest of a packet when `rest`
        rest, rest_error, error = Signal(), Signal(), Signal()
        rest_empty = Signal(6)
        merged = Signal(BEAT_BITS)       # the beat with the new fragment, or the rest unchanged
        now = rotate.o.p.side
        emit, spill, bad = now.emit, now.spill, Signal()
        reached, more = Cat(1, now.whole, 0), Cat(now.more, 0)      # groups with bytes of `kept`, at least partly
        of_kept = Cat(reached[k + 1] | (reached[k] & bit) for k in range(BEAT_BYTES // GROUP) for bit in more)

        def joined(of_kept):
            return Cat(Mux(bit, kept.word_select(j, 8), rotate.o.p.data.word_select(j, 8))
                       for j, bit in enumerate(of_kept))

        m.d.comb += [
            merged.eq(joined(of_kept | rest.replicate(BEAT_BYTES))),
            skid.i.p.data.eq(merged),
            bad.eq(now.error | error),
            rotate.o.ready.eq(~rest & (skid.i.ready | ~emit)),
        ]
        with m.If(rest):
            m.d.comb += [
                skid.i.valid.eq(1),
                skid.i.p.empty.eq(rest_empty),
                skid.i.p.last.eq(1),
                skid.i.p.error.eq(rest_error),
            ]
            with m.If(skid.i.ready):
                m.d.sync += rest.eq(0)
        with m.Else():
            m.d.comb += [
                skid.i.valid.eq(rotate.o.valid & emit),
                skid.i.p.last.eq(now.end & ~spill),
                skid.i.p.empty.eq(Mux(now.end & ~spill, (-now.total)[:6], 0)),
                skid.i.p.error.eq(now.end & ~spill & bad),
            ]
            with m.If(rotate.o.valid & rotate.o.ready):
                m.d.sync += [
                    kept.eq(joined(of_kept & ~emit.replicate(BEAT_BYTES))),
                    error.eq(bad & ~now.end),
                    rest.eq(spill),
                    rest_empty.eq(-now.total),
                    rest_error.eq(bad),
                ]
        return m
