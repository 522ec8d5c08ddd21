"""Doorbell index of a ring and its distances from the ring's indices."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .size import INDEX_WIDTH


class DoorbellLatch(wiring.Component):
    """Holds the newest index written by the host until the ring accepts it, then compares it.

    Latency 3 cycles until an index of the ring has moved; interval 2. The subtraction and the decision that depends on
    it take a cycle each.

    Members
    -------
    index, stb : In(16), In(1)
        Doorbell of the host.
    accept : In(1)
        The ring accepts an index; otherwise it is held.
    clear : In(1)
        Discard a held index.
    cons, prod, mask : In(16)
        Of the ring. Nothing else may move back an index that a doorbell moves while one is ``pending``.
    pending : Out(1)
        An index is held or being compared.
    compared : Out(1)
        Strobe: ``to`` is the index; the distances are those from ``cons`` and ``prod`` of the cycle before.
    to, from_cons, from_prod : Out(16)
    """

    index: In(INDEX_WIDTH)
    stb: In(1)
    accept: In(1)
    clear: In(1)
    cons: In(INDEX_WIDTH)
    prod: In(INDEX_WIDTH)
    mask: In(INDEX_WIDTH)
    pending: Out(1)
    compared: Out(1)
    to: Out(INDEX_WIDTH)
    from_cons: Out(INDEX_WIDTH)
    from_prod: Out(INDEX_WIDTH)

    def elaborate(self, platform):
        m = Module()
        value = Signal(INDEX_WIDTH)
        kept = Signal()
        m.d.comb += self.pending.eq(kept | self.compared)
        m.d.sync += [
            self.compared.eq(0), self.to.eq(value & self.mask),
            self.from_cons.eq((value - self.cons) & self.mask), self.from_prod.eq((value - self.prod) & self.mask),
        ]
        # the ring index after the previous doorbell is not known yet
        with m.If(kept & self.accept & ~self.compared):
            m.d.sync += [self.compared.eq(1), kept.eq(0)]
        with m.If(self.stb):
            m.d.sync += [value.eq(self.index), kept.eq(1)]
        with m.If(self.clear):
            m.d.sync += [self.compared.eq(0), kept.eq(0)]
        return m
