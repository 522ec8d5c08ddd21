"""Beats of memory writes, and the bytes of the stream that each of them takes."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.layouts import BEAT_BYTES
from ..part.logic import greater_than
from ..part.stages import PingPongBuffer
from .tlp import PAGE_BYTES, Piece, byte_enables

MORE_MAX = PAGE_BYTES // BEAT_BYTES      # beats of a piece after its first


class PieceBeats(wiring.Component):
    """Steps through the pieces beat by beat and gives the position of each beat in the stream.

    A beat per cycle, also across pieces; two cycles of latency. The outputs are registered: a waiting piece is stored
    as numbers from which its beats follow by one sum, that of ``until``.

    Parameters
    ----------
    header : ShapeLike
        Address in double words, their count, byte enables at both ends.

    Members
    -------
    i : In(stream.Signature(Piece))
    go : In(1)
        The beat leaves; only while ``valid``.
    valid, first, final, end : Out(1)
        There is a beat; it is the first of its piece; the last; the last of its group.
    header : Out(header)
        Of its piece.
    at, kept : Out(6), Out(64)
        Its first byte, counted from the start of a beat of the stream; a bit for each byte of that beat from there on.
    skip : Out(2)
        Bytes of it before the piece.
    uses_up, crosses : Out(1)
        It takes the last byte of that beat of the stream; it takes bytes of the next one. Neither unless ``valid``.
    busy : Out(1)
    """

    def __init__(self, header):
        self._header = header
        super().__init__({
            "i": In(stream.Signature(Piece)), "go": In(1), "valid": Out(1), "first": Out(1), "final": Out(1, init=1),
            "end": Out(1), "header": Out(header), "at": Out(range(BEAT_BYTES)), "kept": Out(BEAT_BYTES, init=-1),
            "skip": Out(2), "uses_up": Out(1), "crosses": Out(1), "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        advance, take = Signal(), Signal()
        bytes_, beats = range(BEAT_BYTES + 1), range(MORE_MAX + 1)

        # A waiting piece: bytes of its first beat and of its last, beats after the first.
        m.submodules.waiting = waiting = PingPongBuffer(data.StructLayout({
            "header": self._header, "skip": 2, "reach": bytes_, "tail": bytes_, "more": beats, "alone": 1,
            "one_more": 1, "group_end": 1,
        }))
        piece, head, new = self.i.p, self.i.p.address[:2], waiting.i.p
        dwords, first_be, last_be = byte_enables(m, piece.address, piece.length)
        span, before, more, alone = Signal(13), Signal(13), Signal(beats), Signal()
        m.d.comb += [
            waiting.i.valid.eq(self.i.valid), self.i.ready.eq(waiting.i.ready), waiting.o.ready.eq(take),
            span.eq(piece.length + head), more.eq(before[6:]),
            # `head - 1` has no carry: a sum of three numbers would be two carry chains.
            before.eq(piece.length + Cat(~head[0], head[0] == head[1], (head == 0).replicate(len(before) - 2))),
            # `more == 0`, without a carry: a beat minus four bytes plus a remainder, or a whole beat.
            alone.eq(Mux(piece.length[6:].any(), (piece.length == BEAT_BYTES) & (head == 0),
                         ~(piece.length[2:6].all() & (piece.length[:2] + head > 4)))),
            new.header.eq(Cat(piece.address[2:], dwords, first_be, last_be)), new.skip.eq(head),
            new.reach.eq(Mux(alone, piece.length, BEAT_BYTES - head)),
            new.tail.eq(Cat(span[:6], ~span[:6].any())),
            new.more.eq(more), new.alone.eq(alone), new.one_more.eq(more == 1),
            new.group_end.eq(piece.last),
        ]

        # The current piece. While there is none, `until` is the position of the next one.
        until, next_at, next_until, next_end = Signal(7), Signal(6), Signal(7), Signal()
        left, left_final, last_bytes, left_end = Signal(beats), Signal(), Signal(bytes_), Signal()
        new = waiting.o.p
        m.d.comb += [
            advance.eq(~self.valid | self.go), take.eq(advance & self.final),
            next_at.eq(Mux(self.end, 0, until[:6])),
            next_until.eq(next_at + Mux(self.final, Mux(waiting.o.valid, new.reach, 0),
                                        Mux(left_final, last_bytes, BEAT_BYTES))),
            next_end.eq(Mux(self.final, waiting.o.valid & new.alone & new.group_end, left_final & left_end)),
            self.busy.eq(waiting.o.valid | self.valid),
        ]
        with m.If(advance):
            m.d.sync += [
                self.at.eq(next_at), until.eq(next_until), self.end.eq(next_end),
                self.kept.eq(Cat(~greater_than(next_at, j) for j in range(BEAT_BYTES))),
                self.uses_up.eq(next_end | next_until[6]), self.crosses.eq(next_until[6] & next_until[:6].any()),
            ]
            with m.If(self.final):
                m.d.sync += [
                    self.valid.eq(waiting.o.valid), self.first.eq(1), self.final.eq(~waiting.o.valid | new.alone),
                    self.skip.eq(new.skip), self.header.eq(new.header), left.eq(new.more),
                    left_final.eq(new.one_more), last_bytes.eq(new.tail), left_end.eq(new.group_end),
                ]
            with m.Else():
                m.d.sync += [
                    self.first.eq(0), self.final.eq(left_final), self.skip.eq(0), left.eq(left - 1),
                    left_final.eq(left == 2),
                ]
        return m
