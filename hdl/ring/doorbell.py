"""An index that the host rings, and how far it is from those of the ring."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .size import INDEX_WIDTH


class Doorbell(wiring.Component):
    """Keeps an index until the ring hears of it, then says what it is. The newest counts.

    Latency 3 cycles, until an index of the ring has moved; interval 2. A subtraction and what is decided by its result
    are too much for a cycle.

    Members
    -------
    index, stb : In(16), In(1)
        What the host rings.
    hears : In(1)
        Otherwise it is kept.
    clear : In(1)
        It is forgotten.
    cons, prod, mask : In(16)
        Of the ring. What a doorbell moves is nobody else's to move back while one is ``pending``.
    pending : Out(1)
        One is kept or compared.
    compared : Out(1)
        Strobe: ``to`` is the index, and so far from ``cons`` and ``prod`` as they were a cycle ago.
    to, from_cons, from_prod : Out(16)
    """

    index: In(INDEX_WIDTH)
    stb: In(1)
    hears: In(1)
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
        with m.If(kept & self.hears & ~self.compared):      # the index that the one before moves is not known yet
            m.d.sync += [self.compared.eq(1), kept.eq(0)]
        with m.If(self.stb):
            m.d.sync += [value.eq(self.index), kept.eq(1)]
        with m.If(self.clear):
            m.d.sync += [self.compared.eq(0), kept.eq(0)]
        return m
