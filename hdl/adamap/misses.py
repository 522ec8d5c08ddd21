"""How often in a row a node found no entry in the head cache."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..part.logic import above

FEW = 4


class Misses(wiring.Component):
    """Counts up to a limit. A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is.

    Parameters
    ----------
    limit : int

    Members
    -------
    miss, clear : In(1)
        At most one of them.
    few, half, all : Out(1)
        Fewer than ``FEW``; half of the limit, or more; the limit.
    """

    def __init__(self, limit):
        self.limit = limit
        super().__init__({"miss": In(1), "clear": In(1), "few": Out(1), "half": Out(1), "all": Out(1)})

    def elaborate(self, platform):
        m = Module()
        count = Signal(range(self.limit + 1))
        m.d.comb += [self.few.eq(~above(count, FEW - 1)), self.half.eq(above(count, self.limit // 2 - 1)),
                     self.all.eq(count == self.limit)]
        with m.If(self.clear):
            m.d.sync += count.eq(0)
        with m.Elif(self.miss & ~self.all):
            m.d.sync += count.eq(count + 1)
        return m
