"""Check of a pushed descriptor against the indices of its ring."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..part.layouts import BEAT_BITS, PUSH_WINDOW_WIDTH, PushedDescriptor
from .size import INDEX_WIDTH


class PushCheck(wiring.Component):
    """Compares a pushed descriptor with the ring's indices and decides on it two cycles after it came.

    A doorbell in between repeats the comparison. Interval: 3 cycles.

    Members
    -------
    i : In(stream.Signature(PushedDescriptor))
    prod, cons, fetch, mask, size : In(16)
        Indices of the ring, their mask, and the size of the ring.
    running, bell, place : In(1)
        The ring runs; its producer index is about to change; the buffer can take a descriptor now.
    rung, placed, rejected : Out(1)
        Strobes: advance the producer index by one; the descriptor is ``data`` and need not be read; drop it.
    data : Out(512)
    """

    i: In(stream.Signature(PushedDescriptor))
    prod: In(INDEX_WIDTH)
    cons: In(INDEX_WIDTH)
    fetch: In(INDEX_WIDTH)
    mask: In(INDEX_WIDTH)
    size: In(INDEX_WIDTH)
    running: In(1)
    bell: In(1)
    place: In(1)
    rung: Out(1)
    placed: Out(1)
    rejected: Out(1)
    data: Out(BEAT_BITS)

    def elaborate(self, platform):
        m = Module()
        entry = Signal(PushedDescriptor)
        held = Signal()
        compared = Signal()
        behind = Signal(PUSH_WINDOW_WIDTH)     # windows from the producer index to this one
        is_next = Signal()
        is_newest = Signal()
        has_space = Signal()
        nothing_to_fetch = Signal()
        mask = self.mask[:PUSH_WINDOW_WIDTH]
        m.d.comb += [
            self.i.ready.eq(~held), self.data.eq(entry.data),
            behind.eq((entry.window - self.prod) & mask),
        ]
        with m.If(~held):
            m.d.sync += [entry.eq(self.i.payload), held.eq(self.i.valid), compared.eq(0)]
        with m.Elif(self.bell | ~compared):
            m.d.sync += [
                compared.eq(~self.bell),
                is_next.eq(behind == 0), is_newest.eq(behind == mask),
                has_space.eq(((self.prod - self.cons) & self.mask) != self.size),
                nothing_to_fetch.eq(self.fetch == self.prod),
            ]
        with m.Else():
            m.d.sync += held.eq(0)
            with m.If(self.running & is_next & has_space):
                m.d.comb += [self.rung.eq(1), self.placed.eq(entry.whole & nothing_to_fetch & self.place)]
            with m.Elif(~self.running | ~is_newest):
                m.d.comb += self.rejected.eq(1)
        return m
