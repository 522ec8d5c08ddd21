"""Alignment of a contiguous byte stream to memory writes at any byte offset."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.layouts import BEAT_BYTES, Beat
from ..part.stream import Fifo
from .piece_beats import PieceBeats
from .rotate import Rotate
from .tlp import Piece, WriteTlp

WRITES = 16             # beats in the output queue
COMING = 5              # of them, not included in the level yet


class WriteAlign(wiring.Component):
    """Makes a :class:`WriteTlp` of every piece from the next bytes of the stream.

    The stream is a packet per group: as many bytes as the group's pieces. One beat per cycle, also
    across pieces; one cycle more between groups. Five cycles of latency. A beat that begins has a place in the output
    queue: a late ``o.ready`` stalls nothing inside.

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
        m.submodules.pieces = pieces = PieceBeats(header_shape)
        m.submodules.out = out = Fifo(WriteTlp, WRITES, output_registers=1)
        wiring.connect(m, wiring.flipped(self.i), pieces.i)

        # The stream: a beat being used; the next one is on the input.
        beat, beat_valid = Signal(BEAT_BYTES * 8), Signal()
        mixed_valid, space = Signal(), Signal()
        go, replace = Signal(), Signal()
        m.d.comb += [
            go.eq(pieces.valid & beat_valid & (self.i_data.valid | ~pieces.crosses) & space),
            pieces.go.eq(go),
            # A used-up beat is replaced; the next beat is also used up when it ends the group.
            replace.eq(~beat_valid | (pieces.uses_up & (self.i_data.valid | ~pieces.crosses) & space)),
            self.i_data.ready.eq(replace),
        ]
        with m.If(replace):
            m.d.sync += [beat_valid.eq(self.i_data.valid & ~(beat_valid & pieces.end & pieces.crosses)),
                         beat.eq(self.i_data.p.data)]

        # Choose each byte from one of the two beats, then rotate.
        mixed = Signal.like(rotate.i.p)
        m.d.comb += [rotate.i.valid.eq(mixed_valid), rotate.i.p.eq(mixed)]
        m.d.sync += [
            mixed_valid.eq(go),
            mixed.data.eq(Cat(Mux(pieces.kept[j], beat.word_select(j, 8), self.i_data.p.data.word_select(j, 8))
                              for j in range(BEAT_BYTES))),
            mixed.shift.eq(pieces.at - pieces.skip),
            mixed.side.eq(Cat(pieces.first, pieces.final, pieces.header)),
            space.eq(out.level <= WRITES - COMING),
        ]
        wiring.connect(m, out.o, wiring.flipped(self.o))
        m.d.comb += [
            rotate.o.ready.eq(1), out.i.valid.eq(rotate.o.valid), out.i.p.eq(Cat(rotate.o.p.data, rotate.o.p.side)),
            self.busy.eq(pieces.busy | beat_valid | mixed_valid | rotate.busy | out.o.valid),
        ]
        return m
