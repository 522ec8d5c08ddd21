"""Whether something moves into an output register."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Outlet(wiring.Component):
    """``valid`` of an output register, and when it is filled. One item per cycle.

    A block of its own: ``ready`` comes through several rooms, and a tool that knows only one of them gives away the
    single level from there to what it moves.

    Members
    -------
    some : In(1)
        Something may move into the register.
    keep : In(1)
        What moves is offered; otherwise it is gone.
    clear : In(1)
        Nothing moves, and what is offered is gone.
    ready, valid : In(1), Out(1)
        Of the output.
    free : Out(1)
        Whatever moves now is welcome: what is wide loads by this, and does not wait for ``some``.
    moves : Out(1)
        Something moves into the register now.
    """

    def __init__(self):
        super().__init__({"some": In(1), "keep": In(1, init=1), "clear": In(1), "ready": In(1), "valid": Out(1),
                          "free": Out(1), "moves": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.free.eq(~self.valid | self.ready), self.moves.eq(self.some & ~self.clear & self.free)]
        m.d.sync += self.valid.eq((self.moves & self.keep) | (self.valid & ~self.ready & ~self.clear))
        return m
