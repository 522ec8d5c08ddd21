"""Does a header pass over the head of its list, and may it go on?"""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Passing(wiring.Component):
    """What becomes of a header that is looked up, and of the head of its list. Combinational.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: the next header waits for its answer.

    Members
    -------
    valid, held_up : In(1)
        There is one; it waits for another one.
    is_header : In(1)
        Otherwise it is an order to retire the head.
    passed, settles : In(1)
        The list has a head, which is passed over or meant; it goes a cycle later, since one left in the last cycle.
    older : In(1)
        An older header of the list waits.
    follows : In(1)
        The header's node follows the head.
    space : In(1)
        For a retirement.
    ripe : In(1)
        Otherwise a head that is done may go.
    retires : Out(1)
        The head has to go: it does if there is space.
    retire_head, retire_ripe : Out(1)
        It does, or the one that is done.
    looked, free : Out(1)
        The header goes on; then, or if there is none, another one may come.
    """

    def __init__(self):
        super().__init__({
            "valid": In(1), "held_up": In(1), "is_header": In(1), "passed": In(1), "settles": In(1), "older": In(1),
            "follows": In(1), "space": In(1), "ripe": In(1),
            "retires": Out(1), "retire_head": Out(1), "retire_ripe": Out(1), "looked": Out(1), "free": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        go = self.valid & ~self.held_up & ~(self.passed & self.settles)
        m.d.comb += [
            self.retires.eq(go & ~self.older & self.passed),
            # Beside the one head that goes, a header may pass if its node is the new head.
            self.looked.eq(go & (~self.retires | (self.space & (self.follows | ~self.is_header)))),
            self.retire_head.eq(self.retires & self.space), self.retire_ripe.eq(~self.retires & self.ripe & self.space),
            self.free.eq(~self.valid | self.looked),
        ]
        return m
