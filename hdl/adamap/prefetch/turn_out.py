"""Eviction: finds an entry of the head cache for a list that waits, at the cost of another list."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...contract.params import TURN_OUT_PATIENCE, CardParams
from ...part.layouts import QpRef
from ...part.logic import above
from ..cache.cached import cached_record, index_width

FEW = 4


class Misses(wiring.Component):
    """Counts up to a limit. A block of its own, as :class:`~weft.hdl.part.select.IndexOf` is.

    Parameters
    ----------
    limit : int

    Members
    -------
    miss, clear : In(1)
        At most one of them.
    few, half, all : Out(1)
        Fewer than ``FEW``; half of the limit, or more; the limit.
    """

    def __init__(self, limit):
        self.limit = limit
        super().__init__({"miss": In(1), "clear": In(1), "few": Out(1), "half": Out(1), "all": Out(1)})

    def elaborate(self, platform):
        m = Module()
        count = Signal(range(self.limit + 1))
        m.d.comb += [self.few.eq(~above(count, FEW - 1)), self.half.eq(above(count, self.limit // 2 - 1)),
                     self.all.eq(count == self.limit)]
        with m.If(self.clear):
            m.d.sync += count.eq(0)
        with m.Elif(self.miss & ~self.all):
            m.d.sync += count.eq(count + 1)
        return m


class TurnOut(wiring.Component):
    """Takes back the last node of another list, which is fetched again later, or has that list's head retired.

    One entry is looked at each time a node has no place: the node there goes if it is untouched, the last one of its
    list, and no header waits for it. When none was found for half of ``4 * entries + TURN_OUT_PATIENCE`` looks, the
    head of the list looked at is retired early where no header waits, and after all of them in any case. For a list
    that has no node and no waiting header, a node goes only if it is not the first of its list. Ends in the cycle after
    it ``starts``, but where a node may go: then when the row of its list was read, between two matches.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    at_rest : In(1)
        Another start may come soon: a spare node is remembered for it.
    homeless, urgent, none : In(1)
        A node has no place; a header waits for it; its list has none.
    qpn : In
        Its list, which is ``hungry`` from then on.
    starts, hungry : Out
        An entry is looked for.
    landed : In(1)
        A node found a place.
    spare, spare_index, peek_index, peek, peek_valid, peek_touched, peek_last
        As :func:`~weft.hdl.adamap.cache.cached.fill_port` has them.
    waiting : In(1)
        A header waits for the list of ``peek``.
    reads, whose : Out
        The row of this list shall be read; ``read`` answers.
    read, goes_on : In(1)
        ``goes_on``: it lives, and nothing behind its last node is on its way.
    exclusive, granted : Out(1), In(1)
        As :class:`~weft.hdl.adamap.match.matcher.Matcher` has them.
    back, back_ready : Out(1), In(1)
        The node at ``peek_index`` is taken back: it is ahead of the card again.
    release_en : Out(1)
        It leaves the cache. List ``qpn``, whose it was, shall be looked at again, to keep what was taken back.
    o_force : Out(stream.Signature(QpRef))
        The head of this list shall retire.
    ends, given_up : Out(1)
        It is done; without a place being looked for.
    """

    def __init__(self, params: CardParams):
        self.params = params
        index, width = index_width(params), params.qpn_width
        super().__init__({
            "at_rest": In(1), "homeless": In(1), "urgent": In(1), "none": In(1), "qpn": In(width), "landed": In(1),
            "starts": Out(1), "hungry": Out(width),
            "spare": In(1), "spare_index": In(index), "peek_index": Out(index), "peek": In(cached_record(params)),
            "peek_valid": In(1), "peek_touched": In(1), "peek_last": In(1), "waiting": In(1),
            "reads": Out(1), "whose": Out(width), "read": In(1), "goes_on": In(1),
            "exclusive": Out(1), "granted": In(1),
            "back": Out(1), "back_ready": In(1), "release_en": Out(1), "o_force": Out(stream.Signature(QpRef)),
            "ends": Out(1), "given_up": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.misses = misses = Misses(4 * self.params.cache_entries + TURN_OUT_PATIENCE)
        victim, urgent = Signal.like(self.peek_index), self.urgent
        sparing = Signal()      # `victim` is not the first node of its list
        last = Signal()         # it is what was looked at, and may go
        # At `victim`; `waiting`: a header of its list does.
        looked_at = Signal(data.StructLayout({
            "valid": 1, "touched": 1, "waiting": 1, "node": cached_record(self.params)}))
        node, now, same = looked_at.node, self.peek, Signal()
        m.d.comb += [
            self.peek_index.eq(victim), self.whose.eq(node.qpn),
            self.o_force.p.qpn.eq(node.qpn), self.o_force.p.generation.eq(node.generation),
            misses.miss.eq(self.homeless & urgent), self.starts.eq(self.homeless & (urgent | (self.none & sparing))),
        ]
        m.d.comb += same.eq((now.rsn == node.rsn) & (now.qpn == node.qpn) & (now.generation == node.generation))
        with m.If(self.homeless):
            m.d.sync += [looked_at.valid.eq(self.peek_valid), looked_at.touched.eq(self.peek_touched),
                         looked_at.waiting.eq(self.waiting), looked_at.node.eq(now), self.hungry.eq(self.qpn)]
        with m.FSM():
            with m.State("IDLE"):  # waits for a node without a place
                m.d.comb += misses.clear.eq(self.landed)
                with m.If(self.at_rest):
                    m.d.sync += sparing.eq(self.spare & misses.few)
                    with m.If(self.spare & misses.few):
                        m.d.sync += victim.eq(self.spare_index)
                with m.If(self.starts):
                    m.next = "CHOOSE"
            with m.State("CHOOSE"):  # looks at the next entry
                m.d.comb += [self.ends.eq(1), self.given_up.eq(~urgent)]
                m.d.sync += victim.eq(victim + 1)
                m.next = "IDLE"
                with m.If(looked_at.valid & urgent & (misses.all | (~looked_at.waiting & misses.half))):
                    m.d.comb += self.ends.eq(0)
                    m.next = "FORCE"
                with m.Elif(looked_at.valid & ~looked_at.waiting & ~looked_at.touched):
                    m.d.comb += [self.ends.eq(0), self.reads.eq(1)]
                    m.d.sync += victim.eq(victim)
                    m.next = "READ"
            with m.State("READ"):  # waits for the row of its list
                with m.If(self.read):
                    m.d.sync += self.exclusive.eq(1)
                    m.next = "EVICT"
            with m.State("EVICT"):  # waits for a moment between two matches
                m.d.sync += last.eq(self.goes_on & self.peek_last & self.peek_valid & ~self.peek_touched & same)
                with m.If(self.granted):
                    m.next = "TAKE_BACK"
            with m.State("TAKE_BACK"):  # takes the list's last node back
                m.d.comb += self.back.eq(last)
                with m.If(~last | self.back_ready):
                    m.d.comb += [self.release_en.eq(last), self.ends.eq(1)]
                    m.d.sync += [victim.eq(victim + 1), self.exclusive.eq(0)]
                    m.next = "IDLE"
            with m.State("FORCE"):  # waits for the matcher to take the order
                m.d.comb += [self.o_force.valid.eq(1), misses.clear.eq(self.o_force.ready),
                             self.ends.eq(self.o_force.ready)]
                with m.If(self.o_force.ready):
                    m.next = "IDLE"
        return m
