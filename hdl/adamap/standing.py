"""Which entries of the head cache are taken, which hold a node, and where that stands in its list."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Standing(wiring.Component):
    """Six bits for each entry. Latency 1.

    A block of its own, as :class:`~weft.hdl.adamap.index_of.IndexOf` is: that something comes or goes is known last.
    Of all that names an entry, one bit is set at most.

    Parameters
    ----------
    width : int

    Members
    -------
    head_en, heads, after_head, head_last : In
        ``heads`` goes, and ``after_head`` becomes the first one of that list; or it is the one that ``filled`` would
        come behind.
    ripe_en, ripe, after_ripe, ripe_last : In
        As those.
    flush_en, flushed : In
        All these go.
    release_en, released, before : In
        This one goes, or was reserved only; none comes behind ``before`` any more.
    fill_en, filled, begins, last, behind_head : In
        This one comes; it is the first of its list, or comes behind ``last``, a head, unless that goes.
    seconds : In
        This one comes behind what was ``promoted``.
    reserve_en, free : In
        This one is reserved.
    valid, head, linked, reserved : Out(width)
        It holds a node; the first one of a list; one that another one in the cache comes behind (said of nodes alone);
        it waits for one.
    second, promoted : Out(width)
        It comes behind the first one of a list, but of that which was promoted; it has been the first one since this
        cycle.
    """

    def __init__(self, width):
        self.width = width
        super().__init__({
            **dict.fromkeys(("heads", "after_head", "ripe", "after_ripe", "flushed", "released", "before", "filled",
                             "last", "seconds", "free"), In(width)),
            **dict.fromkeys(("head_en", "head_last", "ripe_en", "ripe_last", "flush_en", "release_en", "fill_en",
                             "begins", "behind_head", "reserve_en"), In(1)),
            **dict.fromkeys(("valid", "head", "linked", "reserved", "second", "promoted"), Out(width)),
        })

    def elaborate(self, platform):
        m = Module()

        def of(bit, entries):
            return entries & bit.replicate(self.width)

        comes, goes = of(self.fill_en, self.filled), of(self.release_en, self.released)
        stays = ~(of(self.head_en, self.heads) | of(self.ripe_en, self.ripe) | of(self.flush_en, self.flushed) | goes)
        became = of(self.head_en, self.after_head) | of(self.ripe_en, self.after_ripe)
        begins = self.begins | (self.head_en & self.head_last) | (self.ripe_en & self.ripe_last)
        linked = (self.linked | of(self.fill_en, self.last)) & ~of(self.release_en, self.before)
        m.d.sync += [
            self.valid.eq(comes | self.valid & stays), self.linked.eq(linked & ~comes),
            self.head.eq(of(begins, comes) | ~comes & stays & (self.head | became)),
            self.second.eq(of(~begins & self.behind_head, comes)
                           | ~comes & stays & ~became & (self.second | self.seconds)),
            self.promoted.eq(became),
            self.reserved.eq((self.reserved | of(self.reserve_en, self.free)) & ~goes & ~comes),
        ]
        return m
