"""Handshake of an output register."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class OutputRegister(wiring.Component):
    """``valid`` of an output register and its load enable. One item per cycle.

    Kept as a block: ``ready`` comes through several subsystems, and per-module mapping would trade the single level of
    logic after it for area (docs/development.md, "Size and longest paths").

    Members
    -------
    some : In(1)
        An item is available.
    keep : In(1)
        The item that is loaded is offered; otherwise it is discarded.
    clear : In(1)
        Nothing is loaded, and the offered item is discarded.
    ready, valid : In(1), Out(1)
        Of the output.
    free : Out(1)
        The register accepts an item: load enable of a wide payload, independent of ``some``.
    moves : Out(1)
        An item is loaded in this cycle.
    """

    def __init__(self):
        super().__init__({"some": In(1), "keep": In(1, init=1), "clear": In(1), "ready": In(1), "valid": Out(1),
                          "free": Out(1), "moves": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.free.eq(~self.valid | self.ready), self.moves.eq(self.some & ~self.clear & self.free)]
        m.d.sync += self.valid.eq((self.moves & self.keep) | (self.valid & ~self.ready & ~self.clear))
        return m
