"""The number of the bit that is set."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..logic import encoded


class IndexOf(wiring.Component):
    """Which of some bits is set, and whether one is. Combinational.

    A block of its own, so that its few levels are not given away by a tool that saves cells wherever a block has a
    longer path.

    Parameters
    ----------
    width : int
        A power of two.

    Members
    -------
    i, among : In(width)
        At most one bit is set in both.
    index : Out(range(width))
        0 if none is.
    found : Out(1)
    """

    def __init__(self, width):
        self.width = width
        super().__init__({"i": In(width), "among": In(width), "index": Out(range(width)), "found": Out(1)})

    def elaborate(self, platform):
        m = Module()
        bits = self.i & self.among
        m.d.comb += [self.index.eq(encoded(bits)), self.found.eq(bits.any())]
        return m
