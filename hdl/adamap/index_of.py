"""Of bits: the number of the one that is set, and whether any is."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..part.logic import encoded


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


class AnyOf(wiring.Component):
    """Whether any of some bits is set. Combinational; a block of its own for the same reason.

    Parameters
    ----------
    width : int

    Members
    -------
    i : In(width)
    o : Out(1)
    """

    def __init__(self, width):
        super().__init__({"i": In(width), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(self.i.any())
        return m


class BitOf(wiring.Component):
    """One of some bits, chosen by which is set of others. Combinational; a block of its own for the same reason.

    Parameters
    ----------
    width : int

    Members
    -------
    i, among : In(width)
        At most one bit is set in both.
    bits : In(width)
    o : Out(1)
        0 if none is.
    """

    def __init__(self, width):
        self.width = width
        super().__init__({"i": In(width), "among": In(width), "bits": In(width), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq((self.i & self.among & self.bits).any())
        return m
