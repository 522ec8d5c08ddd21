"""Where a read of a list's next nodes begins, and how many of them it may fetch."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..contract.params import CardParams, exact_log2
from ..part.logic import above, at_most, height, steps_of_least, to_overflow
from .block import extent_member, split
from .fetches import LINES


def reserve(params):
    """Entries of the cache that a list leaves to others, but for its first nodes."""
    return params.cache_entries // 8


class ReadReach(wiring.Component):
    """What a list may have in the cache, and how much of it lies where. Combinational; a block of its own, as
    :class:`~weft.hdl.adamap.index_of.IndexOf` is.

    A read stays within the page, the extent, the nodes that are linked, and the room that the list has in the cache. An
    eighth of the cache is left free, but for one node.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    block : In(params.block_bits)
        The list's next node.
    base, size : In
        Of its extent.
    ahead : In(range(LINES + 2))
        Nodes linked, or more than a read fetches.
    cached, depth, watermark : In
        Nodes of the list in the cache; how many it may have there, and how many it should at least.
    free : In(range(cache_entries + 1))
        Entries that are free.
    room, low : Out(1)
        It may have more; it should.
    line : Out(58)
    inside : Out(1)
        The block is one of the extent; otherwise ``lines`` means nothing.
    lines : Out(range(LINES + 1))
        How many consecutive blocks may be read, if there is ``room``.
    """

    def __init__(self, params: CardParams):
        self.params = params
        count = range(params.cache_entries + 1)
        most = range(2 * params.cache_entries + 1)
        super().__init__({
            "block": In(params.block_bits), "base": In(58), "size": In(extent_member(params)),
            "ahead": In(range(LINES + 2)), "free": In(count), "cached": In(count),
            "depth": In(most), "watermark": In(most), "room": Out(1), "low": Out(1),
            "line": Out(58), "inside": Out(1), "lines": Out(range(LINES + 1)),
        })

    def elaborate(self, platform):
        m = Module()
        p, offset = self.params, split(self.params, self.block)[1]
        within = Signal(extent_member(p))       # blocks to the end of the extent
        room, listed, left, spare, page = (Signal(range(LINES + 1), name=name)
                                           for name in ("lines_of_room", "listed", "left", "spare", "page"))
        m.d.comb += [
            self.line.eq(self.base + offset), within.eq(self.size - offset),
            # The last two numbers are no blocks.
            self.inside.eq((offset < self.size) & ~self.block[1:].all()),
            self.room.eq(self.cached < self.depth), self.low.eq(self.cached < self.watermark),
            room.eq(at_most(LINES, (self.depth - self.cached)[:len(self.depth)])),
            listed.eq(at_most(LINES, self.ahead)),
            left.eq(at_most(LINES, within)), page.eq(to_overflow(LINES, self.line[:exact_log2(abi.PAGE_LINES)])),
            spare.eq(Mux(above(self.free, reserve(p)), at_most(LINES, self.free - reserve(p)), 1)),
            self.lines.eq(height(steps_of_least(LINES, room, listed, left, spare, page))),
        ]
        return m
