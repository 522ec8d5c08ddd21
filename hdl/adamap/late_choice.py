"""A register that takes one of two values, when which one it is comes late."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class LateChoice(wiring.Component):
    """Takes ``late`` or ``early``, or keeps what it has. Latency 1.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: that choice is the last one on the way.

    Parameters
    ----------
    shape

    Members
    -------
    late_en, late : In(1), In(shape)
    early_en, early : In(1), In(shape)
        Counts while ``late_en`` is low.
    o : Out(shape)
    """

    def __init__(self, shape):
        super().__init__({"late_en": In(1), "late": In(shape), "early_en": In(1), "early": In(shape), "o": Out(shape)})

    def elaborate(self, platform):
        m = Module()
        with m.If(self.late_en):
            m.d.sync += self.o.eq(self.late)
        with m.Elif(self.early_en):
            m.d.sync += self.o.eq(self.early)
        return m
