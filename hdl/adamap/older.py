"""Whether a header has an older one before it in the match queue."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


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
    places : In(range(width)).array(width)
        Where in memory each header of the queue lies.
    remove_en, place : In(1), In(range(width))
        The one that leaves.
    coming : In(1)
        One more comes.
    o : Out(1)
    """

    def __init__(self, width):
        self.width = width
        place = range(width)
        super().__init__({"i": In(width), "places": In(place).array(width), "remove_en": In(1), "place": In(place),
                          "coming": In(1), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        here = Cat(place == self.place for place in self.places)
        m.d.comb += self.o.eq(Mux(self.remove_en, (self.i & ~here).any(), self.i.any()) | self.coming)
        return m
