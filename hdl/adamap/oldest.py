"""The first of the headers that may be tried."""

from operator import or_

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..part.logic import choose, tree
from .older import group_of, spread


class Oldest(wiring.Component):
    """The lowest bit that is set, and the value there. Combinational.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is. Groups of bits are decided beside each other,
    then the first group is taken.

    Parameters
    ----------
    width, places : int
        Of a value; how many there are.

    Members
    -------
    i, values : In(places), In(width).array(places)
    any : Out(1)
    picks : Out(places)
        One-hot, if any.
    value : Out(width)
    """

    def __init__(self, width, places):
        self.width, self.places = width, places
        super().__init__({"i": In(places), "values": In(width).array(places),
                          "any": Out(1), "picks": Out(places), "value": Out(width)})

    def elaborate(self, platform):
        m = Module()
        size = group_of(self.places)
        starts = range(0, self.places, size)
        some, first, lowest = Signal(len(starts)), Signal(len(starts)), Signal(self.places)
        values = [Signal(self.width, name=f"value{g}") for g in range(len(starts))]
        for g, (start, value) in enumerate(zip(starts, values, strict=True)):
            group = slice(start, start + size)
            m.d.comb += [
                some[g].eq(self.i[group].any()), first[g].eq(some[g] & ~some[:g].any()),
                lowest[group].eq(Cat(bit & ~self.i[start:start + k].any() for k, bit in enumerate(self.i[group]))),
                value.eq(choose(lowest[group], list(self.values)[group])),
            ]
        m.d.comb += [
            self.any.eq(tree(some, or_)), self.value.eq(choose(first, values)),
            self.picks.eq(lowest & spread(first, self.places)),
        ]
        return m
