"""Matcher, head cache and prefetcher in time: nodes come from host memory, retransmissions wait for them."""

from collections import deque

from weft.hdl import abi

from ..functional.node_list import BrokenList, NodeList
from ..functional.qp_life import QpLife
from .pcie import Read
from .timing import CYCLE_NS

READ_LINES = 4      # of the prefetcher
PAGE_LINES = abi.PAGE_4K // abi.BLOCK_BYTES
SHARE = 3           # waiting headers of one QP to free places of the match queue
Reason = abi.Reason


class TimedList(NodeList):
    """A list whose nodes are there when they were fetched, not before."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.waiting = deque()      # (header, psn or None for a probe), oldest first
        self.reading = False        # a read is on its way
        self.adjacent = False       # the block behind the newest one is its successor
        self.dead = False

    def fetch(self):
        """Nothing: the prefetcher does it."""

    @property
    def line(self):
        """The block that is fetched next."""
        return self._next

    @property
    def more(self):
        """Nodes are linked that are not cached."""
        return self.fetched != self.linked

    def waits(self, rsn):
        """Whether an RSN's node may still come."""
        return self.more and not (self.nodes and self._distance(rsn) < 0)

    def holds(self, rsn):
        return any(node.slot(rsn) is not None for node in self.nodes)


class TimedLife(QpLife):
    """:class:`QpLife` with such a list."""

    list_type = TimedList


class SecondLevel:
    """The second level of all QPs: shares the cache, the match queue and the prefetcher.

    Parameters
    ----------
    card : TimedCard
    """

    def __init__(self, card):
        self.card = card
        self._cached = self._reserved = self._queued = 0
        self._prefetch_free = 0.0
        self._stalled_since = None

    # ----------------------------------------------------------------------------------------- the matcher

    def room(self, life):
        """Whether a retransmission of this QP may wait for its node, if need be."""
        free = self.card.params.match_queue - self._queued
        return free > 0 and len(life.matcher.waiting) < SHARE * free

    def match(self, header, life, judged):
        self._enter(life, (header, judged.psn))

    def probe(self, header, life):
        self._enter(life, (header, None))

    def _enter(self, life, item):
        timing, loop = self.card.timing, self.card.loop
        loop.call_at(loop.now_ns + timing.match, self._try_new, life, item)

    def _try_new(self, life, item):
        nodes = life.matcher
        if nodes.waiting or not self._try(life, item, new=True):
            nodes.waiting.append(item)
            self._wait(1)
            self.card.counters["cache_misses"] += item[1] is not None
            self.look(life)

    def _wait(self, count):
        """So many more headers wait; the cycles in which any does are counted."""
        now = self.card.loop.now_ns
        if self._queued:
            self.card.counters["match_stall_cycles"] += round((now - self._stalled_since) / CYCLE_NS)
        self._queued += count
        self._stalled_since = now

    def _try(self, life, item, new):
        """Match a header, or see that it has to wait."""
        header, psn = item
        nodes, path = life.matcher, self.card.receive_path
        slack = self.card.registers["retransmit_slack"]
        depth = max(1, self.card.registers["prefetch_depth"])
        while True:
            if psn is None:
                nodes.probe(header.rsn)
            else:
                nodes.pass_over(header.rsn, slack)
            hit = psn is not None and nodes.holds(header.rsn)
            if hit or nodes.dead or not nodes.waits(header.rsn) or (psn is None and nodes.nodes):
                break
            if len(nodes.nodes) < depth:
                self._left(life)
                return False
            nodes.force()
        if psn is not None:
            self.card.counters["cache_hits"] += hit and new
            path._refuse_match(nodes.match(psn, header.rsn, slack))
        self._left(life)
        return True

    def _left(self, life):
        """Report the nodes that left, and give their places back."""
        if gone := len(life.matcher.retired):
            self._cached -= gone
            self.card.receive_path.retire(life)
            self.card.loop.call_in(self.card.timing.retired, self.look, life)

    def not_matched(self, life):
        self._left(life)

    # -------------------------------------------------------------------------------------- the prefetcher

    def look(self, life, filling=False):
        """Have the prefetcher look at a list."""
        timing, loop = self.card.timing, self.card.loop
        at = self._prefetch_free = max(loop.now_ns, self._prefetch_free) + timing.look
        loop.call_at(at, self._look, life, filling)

    def _look(self, life, filling):
        nodes, registers, timing = life.matcher, self.card.registers, self.card.timing
        depth = registers["prefetch_depth"]
        cached = len(nodes.nodes)
        ahead = nodes.linked - nodes.fetched
        if nodes.dead or nodes.reading or ahead <= 0 or cached >= depth or self.card.second_level is not self:
            return
        if not (nodes.waiting or filling or cached < registers["prefetch_watermark"]):
            return
        free = self.card.params.cache_entries - self._cached - self._reserved
        reserve = 0 if nodes.waiting else self.card.params.cache_entries // 4
        if free <= reserve:
            return      # looked at again when an entry is given back
        count = 1
        if nodes.adjacent:
            count = min(READ_LINES, depth - cached, ahead, free - reserve, PAGE_LINES - nodes.line % PAGE_LINES)
        self._reserved += count
        nodes.reading = True
        self.card.counters["prefetches"] += 1
        read = Read(nodes.line * abi.BLOCK_BYTES, count * abi.BLOCK_BYTES,
                    lambda done: self.card.loop.call_at(done, self._came, life, count))
        self.card.line_read(self.card.loop.now_ns + count * timing.look_block + timing.ask, read)

    def _came(self, life, count):
        """Blocks of a list arrived."""
        timing, loop = self.card.timing, self.card.loop
        at = max(loop.now_ns + timing.line, self._prefetch_free) + timing.land
        for part in range(count):
            loop.call_at(at + part * timing.land_block, self._land, life, part + 1 == count)
        self._prefetch_free = at + (count - 1) * timing.land_block

    def _land(self, life, final):
        nodes, timing, loop = life.matcher, self.card.timing, self.card.loop
        self._reserved -= 1
        if not nodes.dead and nodes.more:
            last = nodes.line
            try:
                found = nodes.fetch_next()
                self._cached += 1
                nodes.adjacent = bool(found.next_adjacent) and nodes.line == last + 1
            except BrokenList as broken:
                nodes.dead = True
                self.card.receive_path.broken(life, broken)
        if nodes.waiting:
            loop.call_at(loop.now_ns + timing.wake, self._wake, life)
        if final:
            nodes.reading = False
            self.look(life, filling=True)

    def _wake(self, life):
        """Headers of a list are tried again, in order."""
        nodes = life.matcher
        while nodes.waiting and self._try(life, nodes.waiting[0], new=False):
            nodes.waiting.popleft()
            self._wait(-1)
        if nodes.waiting:
            self.look(life)

    def forget(self, life):
        """The QP is gone."""
        nodes = life.matcher
        self._cached -= len(nodes.nodes)
        self._wait(-len(nodes.waiting))
        nodes.waiting.clear()
        nodes.nodes.clear()
        nodes.dead = True
