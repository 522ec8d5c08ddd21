"""Splitter of DMA requests into pieces of at most one TLP."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.layouts import DmaRequest
from .tlp import PAGE_BYTES, SIZE_CODE_WIDTH, SIZE_MIN_LOG2, Piece


class Splitter(wiring.Component):
    """Cuts a request at the multiples of a power of two, so that every later piece is aligned.

    The size divides 4096, hence no piece crosses 4 KiB. One piece per cycle, one cycle of latency.

    Members
    -------
    size : In(3)
        Largest piece, 128 bytes << ``size``; 5 (4096 bytes) at most. Constant while requests are in flight, and from
        a cycle before the first of them.
    i : In(stream.Signature(DmaRequest))
    o : Out(stream.Signature(Piece))
    """

    size: In(SIZE_CODE_WIDTH)
    i: In(stream.Signature(DmaRequest))
    o: Out(stream.Signature(Piece))

    def elaborate(self, platform):
        m = Module()
        valid = Signal()
        request = Signal(DmaRequest)
        mask = Signal(12)
        # Distance to the next multiple of the size, and whether the request ends before it: computed when the request
        # is accepted, as `ready` of the client depends on it.
        space = Signal(13)
        final = Signal()
        first_space, left = Signal(13), Signal.like(request.length)
        m.d.comb += [
            first_space.eq((~self.i.p.address[:12] & mask) + 1),
            left.eq(request.length - space),
            self.o.valid.eq(valid),
            self.o.p.address.eq(request.address),
            self.o.p.length.eq(Mux(final, request.length, space)),
            self.o.p.last.eq(final & request.last),
            self.i.ready.eq(~valid | (self.o.ready & final)),
        ]
        m.d.sync += mask.eq((1 << self.size + SIZE_MIN_LOG2) - 1)
        assert PAGE_BYTES == 1 << len(mask)
        with m.If(self.i.ready):
            m.d.sync += [valid.eq(self.i.valid), request.eq(self.i.payload), space.eq(first_space),
                         final.eq(self.i.p.length <= first_space)]
        with m.Elif(self.o.ready):
            m.d.sync += [
                request.address.eq((request.address | mask) + 1),
                request.length.eq(left), space.eq(mask + 1), final.eq(left <= mask + 1),
            ]
        return m
