"""Whether a header has an older one before it in the match queue."""

from operator import or_

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..logic import up_to


class Elders(wiring.Component):
    """Headers of a queue that are older than one of them. Combinational; a block of its own, as :class:`Older` is.

    Parameters
    ----------
    width : int

    Members
    -------
    mates, own : In(width)
        The headers of its QP; itself, if it is there.
    o : Out(width)
    """

    def __init__(self, width):
        super().__init__({"mates": In(width), "own": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(self.mates & ~Cat(up_to(m, self.own, or_, "passed")))
        return m


class Older(wiring.Component):
    """Is one of some headers in the queue still, behind what this cycle does? Combinational.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: the next header waits for its answer.

    Parameters
    ----------
    width : int

    Members
    -------
    i : In(width)
        The headers that are older, in the order of the queue.
    remove_en, here : In(1), In(width)
        The one that leaves.
    coming : In(1)
        One more comes.
    o : Out(1)
    """

    def __init__(self, width):
        self.width = width
        super().__init__({"i": In(width), "remove_en": In(1), "here": In(width), "coming": In(1), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq((self.i & ~(self.here & self.remove_en.replicate(self.width))).any() | self.coming)
        return m
