"""Which of some bits stand at one that is set, or behind it?"""

from operator import or_

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..logic import up_to


class UpTo(wiring.Component):
    """Combinational; a block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is.

    Parameters
    ----------
    width : int

    Members
    -------
    i, o : In(width), Out(width)
    """

    def __init__(self, width):
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(Cat(up_to(m, self.i, or_, "so_far")))
        return m
