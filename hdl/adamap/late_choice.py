"""A register that takes one of some values, when which one it is comes late."""

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class LateChoice(wiring.Component):
    """Takes ``late``, ``early`` or what is ``other``, or keeps what it has. Latency 1.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: that choice is the last one on the way.

    Parameters
    ----------
    shape
    other : bool
        Whether there is a third value.

    Members
    -------
    late_en, late : In(1), In(shape)
    early_en, early : In(1), In(shape)
        Counts while ``late_en`` is low.
    other_en, other : In(1), In(shape)
        If it has ``other``: what it takes in place of ``early``, while ``early_en`` is high too.
    o : Out(shape)
    """

    def __init__(self, shape, other=False):
        self.other_too = other
        super().__init__({"late_en": In(1), "late": In(shape), "early_en": In(1), "early": In(shape), "o": Out(shape),
                          **({"other_en": In(1), "other": In(shape)} if other else {})})

    def elaborate(self, platform):
        m = Module()
        with m.If(self.late_en):
            m.d.sync += self.o.eq(self.late)
        with m.Elif(self.early_en):
            m.d.sync += self.o.eq(Mux(self.other_en, self.other, self.early) if self.other_too else self.early)
        return m
