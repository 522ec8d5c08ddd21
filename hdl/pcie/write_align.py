"""Places a contiguous byte stream into memory writes, at any byte offset."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..layouts import BEAT_BYTES, Beat
from ..logic import above
from .rotate import Rotate
from .tlp import Piece, WriteTlp, byte_enables


class WriteAlign(wiring.Component):
    """Makes a :class:`WriteTlp` of every piece from the next bytes of the stream.

    The stream is a packet per group: as many bytes as the group's pieces. One beat per cycle, also
    across pieces; one cycle more between groups. Four cycles of latency.

    Members
    -------
    i : In(stream.Signature(Piece))
    i_data : In(stream.Signature(Beat))
    o : Out(stream.Signature(WriteTlp))
    busy : Out(1)
    """

    i: In(stream.Signature(Piece))
    i_data: In(stream.Signature(Beat))
    o: Out(stream.Signature(WriteTlp))
    busy: Out(1)

    def elaborate(self, platform):
        m = Module()
        header_shape = data.StructLayout({"address": 62, "dwords": 11, "first_be": 4, "last_be": 4})
        m.submodules.rotate = rotate = Rotate(data.StructLayout({"first": 1, "last": 1, "header": header_shape}))

        # The piece under way. `span`: bytes left of it, counted from the start of the output beat.
        valid, first, group_end = Signal(), Signal(), Signal()
        span, skip = Signal(13), Signal(2)
        header = Signal(header_shape)
        dwords, first_be, last_be = byte_enables(m, self.i.p.address, self.i.p.length)

        # The stream: a beat being used, from byte `at` on; the next one is on the input.
        beat, beat_valid = Signal(BEAT_BYTES * 8), Signal()
        at = Signal(6)

        final, crosses, go, end = Signal(), Signal(), Signal(), Signal()
        until = Signal(7)                # one past the last byte used, from the start of `beat`
        shift = (at - skip)[:7]
        mixed_valid, mixed_ready = Signal(), Signal()
        m.d.comb += [
            final.eq(~above(span, BEAT_BYTES)),
            until.eq(Mux(final, shift + span[:7], shift + BEAT_BYTES)),
            crosses.eq(above(until, BEAT_BYTES)),
            go.eq(valid & beat_valid & (self.i_data.valid | ~crosses) & mixed_ready),
            end.eq(final & group_end),
            self.i.ready.eq(~valid | (go & final)),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                valid.eq(self.i.valid), first.eq(1), group_end.eq(self.i.p.last), skip.eq(self.i.p.address[:2]),
                span.eq(self.i.p.length + self.i.p.address[:2]),
                header.eq(Cat(self.i.p.address[2:], dwords, first_be, last_be)),
            ]
        with m.Elif(go):
            m.d.sync += [first.eq(0), skip.eq(0), span.eq(span - BEAT_BYTES)]
        with m.If(go):
            m.d.sync += at.eq(Mux(end, 0, until))
        # A used-up beat is replaced; the next beat is also used up when it ends the group.
        replace = Signal()
        m.d.comb += [
            replace.eq(~beat_valid | (go & (end | (until >= BEAT_BYTES)))),
            self.i_data.ready.eq(replace),
        ]
        with m.If(replace):
            m.d.sync += [beat_valid.eq(self.i_data.valid & ~(go & end & crosses)), beat.eq(self.i_data.p.data)]

        # Choose each byte from one of the two beats, then rotate.
        mixed = Signal.like(rotate.i.p)
        m.d.comb += [
            mixed_ready.eq(~mixed_valid | rotate.i.ready),
            rotate.i.valid.eq(mixed_valid),
            rotate.i.p.eq(mixed),
        ]
        with m.If(mixed_ready):
            m.d.sync += [
                mixed_valid.eq(go),
                mixed.data.eq(Cat(Mux(at <= j, beat.word_select(j, 8), self.i_data.p.data.word_select(j, 8))
                                  for j in range(BEAT_BYTES))),
                mixed.shift.eq(shift),
                mixed.side.eq(Cat(first, final, header)),
            ]
        side = rotate.o.p.side
        m.d.comb += [
            self.o.valid.eq(rotate.o.valid),
            rotate.o.ready.eq(self.o.ready),
            self.o.p.eq(Cat(rotate.o.p.data, side)),
            self.busy.eq(valid | beat_valid | mixed_valid | rotate.busy),
        ]
        return m
