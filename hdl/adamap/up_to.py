"""Which of some bits stand at one that is set, or behind it?"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

GROUP = 4


class UpTo(wiring.Component):
    """Says so in two steps: among a few bits, then whether those before them have one. Latency 2.

    Parameters
    ----------
    width : int

    Members
    -------
    i, o : In(width), Out(width)
    """

    def __init__(self, width):
        super().__init__({"i": In(width), "o": Out(width)})

    def elaborate(self, platform):
        m = Module()
        width = len(self.i)
        groups = [self.i[k:k + GROUP] for k in range(0, width, GROUP)]
        within, some = Signal(width), Signal(len(groups))
        m.d.sync += [
            within.eq(Cat(group[:k + 1].any() for group in groups for k in range(len(group)))),
            some.eq(Cat(group.any() for group in groups)),
            self.o.eq(within | Cat(some[:k // GROUP].any() for k in range(width))),
        ]
        return m
