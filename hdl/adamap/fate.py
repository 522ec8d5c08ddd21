"""What becomes of a header that was looked up: it goes on to its node, waits, or is refused."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi


class Fate(wiring.Component):
    """Decides about a header when the state of its list has been read. Combinational.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: what it is told comes late.

    Members
    -------
    valid, new : In(1)
        There is a header; it does not come from the match queue.
    older : In(1)
        An older one of its list waits.
    live, list_generation, generation : In(1), In(8), In(8)
        The list is there, and whose it is; whose the header is.
    hit, head, behind : In(1)
        Its node is cached; the list has a cached node; the header is behind that.
    more : In(1)
        Nodes are linked that are not cached.
    probe : In(1)
    ends : Out(1)
        The header is done with: it marks its node (``hits``), or is refused for ``reason``.
    hits, reason : Out(1), Out(8)
    misses : Out(1)
        It waits for a node that is not cached.
    insert, put_back : Out(1)
        It joins the match queue, or stays there.
    """

    def __init__(self):
        super().__init__({
            "valid": In(1), "new": In(1), "older": In(1), "live": In(1), "list_generation": In(8),
            "generation": In(8), "hit": In(1), "head": In(1), "behind": In(1), "more": In(1), "probe": In(1),
            "ends": Out(1), "hits": Out(1), "reason": Out(8), "misses": Out(1), "insert": Out(1), "put_back": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        waits = self.older | self.misses
        judged, current, absent = self.valid & ~self.older, Signal(), Signal()
        m.d.comb += [
            current.eq(self.live & (self.list_generation == self.generation)),
            absent.eq(self.more & ~self.hit & ~self.behind & ~(self.probe & self.head)),
            # Apart from its reason, for the match queue waits for it.
            self.ends.eq(judged & ~(current & absent)), self.misses.eq(judged & current & absent),
            self.hits.eq(judged & current & self.hit),
        ]
        with m.If(~current):
            m.d.comb += self.reason.eq(abi.Reason.STALE_GENERATION.value)
        with m.Elif(self.hit):
            m.d.comb += self.reason.eq(abi.Reason.OK.value)
        with m.Elif(self.behind | ~(self.head | self.more)):
            m.d.comb += self.reason.eq(abi.Reason.STALE_RSN.value)
        with m.Else():
            m.d.comb += self.reason.eq(abi.Reason.NOT_IN_NODE.value)
        m.d.comb += [
            self.insert.eq(self.valid & waits & self.new), self.put_back.eq(self.valid & waits & ~self.new),
        ]
        return m
