"""Which entries of the head cache hold a node, and which of them are the first of their list."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Standing(wiring.Component):
    """Two bits for each entry. Latency 1.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: that something comes or goes is known last.

    Parameters
    ----------
    width : int

    Members
    -------
    head_en, heads, after_head : In
        ``heads`` goes, of which one bit is set at most, and ``after_head`` becomes the first of that list.
    ripe_en, ripe, after_ripe : In
        As those.
    flush_en, flushed : In
        These go.
    released : In(width)
        These do.
    filled, begins : In(width), In(1)
        This one comes; it is the first of its list.
    valid, head : Out(width)
    """

    def __init__(self, width):
        self.width = width
        super().__init__({
            **dict.fromkeys(("heads", "after_head", "ripe", "after_ripe", "flushed", "released", "filled"), In(width)),
            **dict.fromkeys(("head_en", "ripe_en", "flush_en", "begins"), In(1)),
            "valid": Out(width), "head": Out(width),
        })

    def elaborate(self, platform):
        m = Module()
        head_en, ripe_en, flush_en, begins = (
            bit.replicate(self.width) for bit in (self.head_en, self.ripe_en, self.flush_en, self.begins))
        stays = ~(self.heads & head_en | self.ripe & ripe_en | self.flushed & flush_en | self.released)
        became = self.after_head & head_en | self.after_ripe & ripe_en
        m.d.sync += [self.valid.eq(self.filled | self.valid & stays),
                     self.head.eq(self.filled & begins | ~self.filled & stays & (self.head | became))]
        return m
