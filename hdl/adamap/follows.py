"""Is the node that holds a header's RSN the one behind the head of its list?"""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Follows(wiring.Component):
    """Combinational.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: which entry comes after the head is known
    late.

    Parameters
    ----------
    width : int
        Bits of the number of an entry.

    Members
    -------
    index, after : In(width)
        The entry that holds the RSN, and the one after the head.
    any : In(1)
        There is one.
    o : Out(1)
    """

    def __init__(self, width):
        super().__init__({"index": In(width), "after": In(width), "any": In(1), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(self.any & (self.index == self.after))
        return m
