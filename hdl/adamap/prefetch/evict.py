"""Eviction: frees an entry of the head cache for a list that waits, at the cost of another list."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...contract.params import EVICT_LIMIT, CardParams
from ...part.layouts import QpRef
from ...part.logic import greater_than
from ..cache.cached import cached_record, index_width

FEW = 4


class MissCounter(wiring.Component):
    """Saturating counter of misses.

    Kept as a block because per-module mapping trades depth for area (docs/development.md, "Size and longest paths").

    Parameters
    ----------
    limit : int

    Members
    -------
    miss, clear : In(1)
        At most one of them.
    few, half, all : Out(1)
        Fewer than ``FEW`` misses; half of the limit, or more; the limit.
    """

    def __init__(self, limit):
        self.limit = limit
        super().__init__({"miss": In(1), "clear": In(1), "few": Out(1), "half": Out(1), "all": Out(1)})

    def elaborate(self, platform):
        m = Module()
        count = Signal(range(self.limit + 1))
        m.d.comb += [self.few.eq(~greater_than(count, FEW - 1)), self.half.eq(greater_than(count, self.limit // 2 - 1)),
                     self.all.eq(count == self.limit)]
        with m.If(self.clear):
            m.d.sync += count.eq(0)
        with m.Elif(self.miss & ~self.all):
            m.d.sync += count.eq(count + 1)
        return m


class Evict(wiring.Component):
    """Evicts the last node of another list, which is fetched again later, or has that list's head retired.

    One entry is examined each time a node finds none: the node in it is evicted if it is untouched, the last one of its
    list, and no header waits for it. After half of ``4 * entries + TURN_OUT_PATIENCE`` examined entries without a
    victim, the head of the examined list is retired early if no header waits, and after all of them in any case. For a
    list that has no node and no waiting header, a node is evicted only if it is not the first of its list. Ends in the
    cycle after it ``starts``, except for a possible victim: then when the row of its list was read, between two
    matches.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    at_rest : In(1)
        Another start may come soon: remember an eviction candidate for it.
    no_entry, demand, none : In(1)
        There is no entry for a node; a header waits for it; its list has no cached node.
    qpn : In
        Its list, which becomes the requester (``requester``).
    starts, requester : Out
        The search for a victim starts.
    filled : In(1)
        A node was filled.
    candidate, candidate_index, peek_index, peek, peek_valid, peek_touched, peek_last
        As for :func:`~weft.hdl.adamap.cache.cached.fill_port`.
    waiting : In(1)
        A header waits for the list of ``peek``.
    reads, list_qpn : Out
        Request to read the row of this list; ``read`` is the response.
    read, goes_on : In(1)
        ``goes_on``: it exists, and no read of nodes after its last one is in flight.
    exclusive, granted : Out(1), In(1)
        As for :class:`~weft.hdl.adamap.match.matcher.Matcher`.
    back, back_ready : Out(1), In(1)
        Evict the node at ``peek_index``: it is ahead of the card again.
    release_en : Out(1)
        It leaves the cache. Its list ``qpn`` must be queued again, to fetch the node later.
    o_force : Out(stream.Signature(QpRef))
        Retire the head of this list.
    ends, given_up : Out(1)
        The search is finished; without having examined an entry.
    """

    def __init__(self, params: CardParams):
        self.params = params
        index, width = index_width(params), params.qpn_width
        super().__init__({
            "at_rest": In(1), "no_entry": In(1), "demand": In(1), "none": In(1), "qpn": In(width), "filled": In(1),
            "starts": Out(1), "requester": Out(width),
            "candidate": In(1), "candidate_index": In(index), "peek_index": Out(index),
            "peek": In(cached_record(params)),
            "peek_valid": In(1), "peek_touched": In(1), "peek_last": In(1), "waiting": In(1),
            "reads": Out(1), "list_qpn": Out(width), "read": In(1), "goes_on": In(1),
            "exclusive": Out(1), "granted": In(1),
            "back": Out(1), "back_ready": In(1), "release_en": Out(1), "o_force": Out(stream.Signature(QpRef)),
            "ends": Out(1), "given_up": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.misses = misses = MissCounter(4 * self.params.cache_entries + EVICT_LIMIT)
        victim, demand = Signal.like(self.peek_index), self.demand
        not_head = Signal()      # `victim` is not the first node of its list
        last = Signal()         # it is the examined node, and may be evicted
        # The entry at `victim`; `waiting`: a header of its list waits.
        looked_at = Signal(data.StructLayout({
            "valid": 1, "touched": 1, "waiting": 1, "node": cached_record(self.params)}))
        node, now, same = looked_at.node, self.peek, Signal()
        m.d.comb += [
            self.peek_index.eq(victim), self.list_qpn.eq(node.qpn),
            self.o_force.p.qpn.eq(node.qpn), self.o_force.p.generation.eq(node.generation),
            misses.miss.eq(self.no_entry & demand), self.starts.eq(self.no_entry & (demand | (self.none & not_head))),
        ]
        m.d.comb += same.eq((now.rsn == node.rsn) & (now.qpn == node.qpn) & (now.generation == node.generation))
        with m.If(self.no_entry):
            m.d.sync += [looked_at.valid.eq(self.peek_valid), looked_at.touched.eq(self.peek_touched),
                         looked_at.waiting.eq(self.waiting), looked_at.node.eq(now), self.requester.eq(self.qpn)]
        with m.FSM():
            with m.State("IDLE"):  # waits for a miss
                m.d.comb += misses.clear.eq(self.filled)
                with m.If(self.at_rest):
                    m.d.sync += not_head.eq(self.candidate & misses.few)
                    with m.If(self.candidate & misses.few):
                        m.d.sync += victim.eq(self.candidate_index)
                with m.If(self.starts):
                    m.next = "CHOOSE"
            with m.State("CHOOSE"):  # examines the next entry
                m.d.comb += [self.ends.eq(1), self.given_up.eq(~demand)]
                m.d.sync += victim.eq(victim + 1)
                m.next = "IDLE"
                with m.If(looked_at.valid & demand & (misses.all | (~looked_at.waiting & misses.half))):
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
            with m.State("EVICT"):  # waits for a cycle between two matches
                m.d.sync += last.eq(self.goes_on & self.peek_last & self.peek_valid & ~self.peek_touched & same)
                with m.If(self.granted):
                    m.next = "TAKE_BACK"
            with m.State("TAKE_BACK"):  # evicts the list's last node
                m.d.comb += self.back.eq(last)
                with m.If(~last | self.back_ready):
                    m.d.comb += [self.release_en.eq(last), self.ends.eq(1)]
                    m.d.sync += [victim.eq(victim + 1), self.exclusive.eq(0)]
                    m.next = "IDLE"
            with m.State("FORCE"):  # waits for the matcher to accept the order
                m.d.comb += [self.o_force.valid.eq(1), misses.clear.eq(self.o_force.ready),
                             self.ends.eq(self.o_force.ready)]
                with m.If(self.o_force.ready):
                    m.next = "IDLE"
        return m
