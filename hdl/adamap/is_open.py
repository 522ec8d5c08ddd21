"""Is a hole of a node still open?"""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .cached import COUNT_WIDTH, Pending


class IsOpen(wiring.Component):
    """Combinational; a block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is.

    Members
    -------
    pending : In(Pending)
    bit : In(9)
        Which one.
    o : Out(1)
        A node whose count and body do not agree ends with its count.
    """

    def __init__(self):
        super().__init__({"pending": In(Pending), "bit": In(COUNT_WIDTH), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(self.pending.open.bit_select(self.bit, 1) & (self.pending.left != 0))
        return m
