"""What becomes of a block that a read brought."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Landing(wiring.Component):
    """Decides about a block for which an entry of the cache was asked. Combinational.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: the cache waits for its answer.

    Members
    -------
    here : In(1)
        There is one.
    other : In(1)
        It is not the list's next one, or not wanted.
    bad : In(1)
        It is damaged, of another list, or could not be read.
    ends, more : In(1)
        It names no successor; but there is one by now.
    taken : In(1)
        It has an entry.
    fill_ready, step_ready : In(1)
        Cache and table take a node.
    breaks, grew : Out(1)
        The list breaks; the block is read again.
    offers, lands : Out(1)
        The table is asked for a step; the node enters the cache.
    releases : Out(1)
        Its entry is given back.
    """

    def __init__(self):
        super().__init__({
            **dict.fromkeys(("here", "other", "bad", "ends", "more", "taken", "fill_ready", "step_ready"), In(1)),
            **dict.fromkeys(("breaks", "grew", "offers", "lands", "releases"), Out(1)),
        })

    def elaborate(self, platform):
        m = Module()
        sound = Signal()
        m.d.comb += [
            self.breaks.eq(~self.other & self.bad), self.grew.eq(~self.other & ~self.bad & self.ends & self.more),
            sound.eq(~self.other & ~self.bad & ~(self.ends & self.more)),
            self.offers.eq(self.here & sound & self.taken & self.fill_ready),
            self.lands.eq(self.offers & self.step_ready), self.releases.eq(self.here & self.taken & ~sound),
        ]
        return m
