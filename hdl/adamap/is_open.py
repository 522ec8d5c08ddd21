"""Is a hole of a node open, as it was read?"""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from .cached import COUNT_WIDTH


class IsOpen(wiring.Component):
    """Combinational; a block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is.

    Members
    -------
    open : In(NODE_BODY_BITS)
        Of :class:`~weft.hdl.adamap.cached.Pending`.
    bit : In(9)
        Which one.
    o : Out(1)
    """

    def __init__(self):
        super().__init__({"open": In(abi.NODE_BODY_BITS), "bit": In(COUNT_WIDTH), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(self.open.bit_select(self.bit, 1))
        return m
