"""The one of several values whose bit is set."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..part.logic import choose


class OneOf(wiring.Component):
    """Combinational; a block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is.

    Parameters
    ----------
    width, places : int

    Members
    -------
    chosen : In(places)
        At most one bit is set.
    values : In(width).array(places)
    o : Out(width)
        0 if none is.
    """

    def __init__(self, width, places):
        super().__init__({"chosen": In(places), "values": In(width).array(places), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(choose(self.chosen, self.values))
        return m
