"""Which of several numbers are a certain one?"""

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Among(wiring.Component):
    """Compares a number with those of some places. Combinational.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: others wait for its answer.

    Parameters
    ----------
    width, places : int

    Members
    -------
    i : In(width)
    numbers, present : In(width).array(places), In(places)
        What is compared, and where there is something.
    bits : Out(places)
        It is there.
    any : Out(1)
        It is anywhere.
    """

    def __init__(self, width, places):
        super().__init__({"i": In(width), "numbers": In(width).array(places), "present": In(places),
                          "bits": Out(places), "any": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.bits.eq(self.present & Cat(number == self.i for number in self.numbers)),
                     self.any.eq(self.bits.any())]
        return m
