"""Prefetcher of the timing model: checks lists one at a time, reads blocks, and fills nodes into the cache.

The steps and their lengths are those of ``hdl/adamap/prefetch/prefetch.py``; a step is a cycle.
"""

from collections import deque

from weft.hdl.contract import abi
from weft.hdl.contract.params import EVICT_LIMIT, NODE_READS_MAX, REQUEST_LINES_MAX

from ..functional.node import damage
from ..functional.node_list import BrokenList
from .pcie import LINE_ADAMAP, Read
from .timing import CYCLE_NS

LOOK = 4 * CYCLE_NS         # from the choice of a list to the result of its check
PASS = LOOK + CYCLE_NS      # duration of a check without a result
OWN = -CYCLE_NS             # lag of a check that the prefetcher itself requests, relative to one of the matcher
WORK = 2 * CYCLE_NS         # from the entry of a list into the waiting list until it may be chosen
BLOCK = 4 * CYCLE_NS        # between the blocks of a read
FILL = 6 * CYCLE_NS         # from the choice of a finished read until the fill of its first block
KEPT = 4 * CYCLE_NS         # from the check of a list to the fill of its kept blocks
CANDIDATE_CHECKS = 4     # attempts that prefer the last node of a list as the victim
CHECK = 2 * CYCLE_NS        # from the choice of an entry to the fill
COUNTED = 2 * CYCLE_NS      # from the removal of a node until its entry counts as free
LISTED = 3 * CYCLE_NS       # from the removal of a node until its list no longer counts it


class Fetch(Read):
    """Read of consecutive blocks of a list. ``blocks``: its data, or None; ``kept``: the data arrived, but there was no
    entry for it; ``loose``: it may be dropped when its slot is needed."""

    __slots__ = ("blocks", "count", "kept", "incarnation", "line", "loose")


class Prefetcher:
    """Prefetcher of the lists of all QPs.

    Parameters
    ----------
    card : TimedCard
    wake : callable(``incarnation``)
        Called when a list has another node.
    force : callable(``incarnation``)
        Called when the head of a list must retire.
    """

    def __init__(self, card, wake, force):
        self.card, self._wake, self._force = card, wake, force
        self._work, self._in = deque(), set()       # (`incarnation`, time of the earliest check); lists in the queue
        self._came = deque()        # (`incarnation`, read, time at which it is visible), in that order
        self._full = []             # lists that wait for the end of a read
        self._reads = [None] * min(NODE_READS_MAX, card.params.cache_entries)
        self._free_at = 0.0         # end of the current operation
        self._shown_at = 0.0        # time at which finished reads are visible again
        self._next = None           # time of the next choice
        self.entries = [None] * card.params.cache_entries      # of the cache: (`incarnation`, node) or None
        self._leaving = []          # (time, entry) of nodes that are no longer matched
        self._victim = self._misses = 0

    # ------------------------------------------------------------------------------------------ waiting work

    def look(self, incarnation, lag=0.0, first=None):
        """Request a check of a list, now or after ``lag``.

        ``first``: delay from then until the list may be chosen; None: the delay of a request of the matcher.
        """
        until = lag + (self.card.timing.look if first is None else first)
        self.card.loop.call_in(until - WORK, self._enter, incarnation)

    def _enter(self, incarnation):
        """Put a list into the waiting list, unless it is there."""
        if incarnation not in self._in:
            self._in.add(incarnation)
            self._work.append((incarnation, self.card.loop.now_ns + WORK))
            self._choose_at(self._work[0][1])

    def _choose_at(self, time_ns):
        at = max(time_ns, self._free_at)
        if self._next is None or at < self._next:
            self._next = at
            self.card.loop.call_at(at, self._choose, at)

    def _choose(self, at):
        """Choose the next operation: finished reads before checks."""
        if at != self._next or self.card.second_level.prefetcher is not self:
            return
        self._next = None
        now = self.card.loop.now_ns
        if now < self._free_at:
            pass
        elif self._came and self._came_at <= now:
            incarnation, read, _ = self._came.popleft()
            self._free_at = now + FILL + (read.count - 1) * BLOCK + PASS
            self.card.loop.call_at(now + FILL, self._fill, incarnation, read, 0)
        elif self._work and self._work[0][1] <= now:
            incarnation, _ = self._work.popleft()
            self._in.discard(incarnation)
            self._free_at = now + PASS
            self.card.loop.call_at(now + LOOK, self._look, incarnation, False)
        self._go_on()

    @property
    def _came_at(self):
        """Time at which the first finished read is visible."""
        return max(self._came[0][2], self._shown_at)

    def _go_on(self):
        if self._came:
            self._choose_at(self._came_at)
        if self._work:
            self._choose_at(self._work[0][1])

    # -------------------------------------------------------------------------------------- check of a list

    def _look(self, incarnation, filling):
        nodes, registers, now = incarnation.matcher, self.card.registers, self.card.loop.now_ns
        depth, waiting = max(1, registers["prefetch_depth"]), bool(nodes.waiting)
        cached, ahead = self.cached(incarnation, now - LISTED), nodes.linked - nodes.fetched
        if nodes.destroyed:
            return
        if nodes.read and nodes.read.kept:
            self._free_at = max(self._free_at, now + KEPT + (nodes.read.count - 1) * BLOCK + PASS)
            nodes.read.kept = False
            self.card.loop.call_in(KEPT, self._fill, incarnation, nodes.read, 0)
            return
        if nodes.read or ahead <= 0 or cached >= depth:
            return
        if not (waiting or filling or cached < registers["prefetch_watermark"]):
            return
        if None not in self._reads:
            self._make_place(incarnation, waiting or not cached)
            return
        count = 1
        if nodes.adjacent:
            unreserved = max(1, self._free(now - COUNTED) - self._reserve)
            count = min(REQUEST_LINES_MAX, depth - cached, ahead, unreserved,
                        abi.PAGE_LINES - nodes.line % abi.PAGE_LINES)
        self._free_at = max(self._free_at, now + 2 * CYCLE_NS)
        self._issue(incarnation, count)

    def cached(self, incarnation, at):
        """Return the number of cached nodes of a list, as counted at a time."""
        return len(incarnation.matcher.nodes) + len(incarnation.matcher.ended) + sum(
            gone > at and self.entries[entry][0] is incarnation for gone, entry in self._leaving)

    def _free(self, at):
        """Return the number of free entries, as counted at a time."""
        return self.entries.count(None) + sum(gone <= at for gone, _ in self._leaving)

    @property
    def _reserve(self):
        """Number of entries that stay free for first nodes, and for nodes that a header waits for."""
        return len(self.entries) // 8

    def _make_place(self, incarnation, needed):
        """Free a slot for a read: drop the kept blocks of another list, or wait for the end of a read."""
        loose = next((read for read in self._reads if read.kept and read.loose), None)
        if needed and loose:
            self._finish(loose)
            self.look(incarnation, OWN + 2 * CYCLE_NS)
        elif incarnation.matcher.waiting or any(not read.kept for read in self._reads):
            self._full.append(incarnation)

    def _issue(self, incarnation, count):
        nodes, loop, timing = incarnation.matcher, self.card.loop, self.card.timing
        self.card.counters["prefetches"] += 1
        read = Fetch(nodes.line * abi.BLOCK_BYTES, count * abi.BLOCK_BYTES,
                     lambda done: self._answered(incarnation, read, done))
        read.incarnation, read.line, read.count, read.kept, read.loose = incarnation, nodes.line, count, False, False
        read.blocks = None
        nodes.read = self._reads[self._reads.index(None)] = read
        self.card.line_read(loop.now_ns + CYCLE_NS + timing.ask, LINE_ADAMAP, read)

    def _finish(self, read):
        """Release the slot of a read, and request checks of the lists that waited for that."""
        self._reads[self._reads.index(read)] = read.incarnation.matcher.read = None
        for other in self._full:
            self.look(other, OWN)
        self._full.clear()

    def forget(self, incarnation):
        """Drop the kept blocks of a destroyed QP."""
        if incarnation.matcher.read and incarnation.matcher.read.kept:
            self._finish(incarnation.matcher.read)

    def _answered(self, incarnation, read, done):
        read.blocks = incarnation.matcher.blocks(read.line, read.count)
        at = done + self.card.timing.line + (read.count - 1) * CYCLE_NS     # line by line
        self._came.append((incarnation, read, at))
        self._choose_at(at)

    # ------------------------------------------------------------------------------------------------- fills

    def _fill(self, incarnation, read, part):
        """Fill an entry with a block of a read, if the block is the list's next node and an entry is available."""
        nodes, checked = incarnation.matcher, self.card.loop.now_ns - CHECK
        if nodes.read is not read:      # the QP was destroyed
            return
        if not nodes.destroyed and nodes.line == read.line + part and not self._grew(nodes, read, part):
            if self._free(checked) and (nodes.waiting or not self.cached(incarnation, checked - LISTED)
                                        or self._free(checked - COUNTED) > self._reserve):
                self._take(incarnation)
                self._wake(incarnation)
            elif not part and self._sound(incarnation):
                self._keep(incarnation, read)
                return
        if part + 1 < read.count:
            self.card.loop.call_in(BLOCK, self._fill, incarnation, read, part + 1)
            return
        self._finish(read)
        if not nodes.destroyed:
            self._free_at = max(self._free_at, self.card.loop.now_ns + PASS)
            self.card.loop.call_in(LOOK, self._look, incarnation, True)

    @staticmethod
    def _grew(nodes, read, part):
        """Return whether a node was linked after a block since the block was read, so that its pointer is outdated."""
        if part + 1 != read.count or nodes.fetched + 1 == nodes.linked or read.blocks is None:
            return False
        return not abi.NODE.unpack(read.blocks[part]).next_line and not damage(read.blocks[part])

    def _keep(self, incarnation, read):
        """Keep a read for which no entry is available."""
        self._free_at = self.card.loop.now_ns + CYCLE_NS
        self._shown_at = self._free_at + CYCLE_NS
        read.kept, read.loose = True, not incarnation.matcher.waiting
        self._evict(incarnation)

    def _sound(self, incarnation):
        """Return whether the block continues the list; otherwise stop the list."""
        nodes = incarnation.matcher
        line, adjacent = nodes.line, nodes.adjacent
        found = self._read_node(incarnation)
        if found:
            nodes.take_back(line, adjacent)
        return bool(found)

    def _read_node(self, incarnation):
        """Return the block as the list's next node; None if it is invalid."""
        try:
            return incarnation.matcher.fetch_next()
        except BrokenList as broken:
            incarnation.matcher.destroyed = True
            self.card.receive_path.broken(incarnation, broken)
            return None

    def _take(self, incarnation):
        found = self._read_node(incarnation)
        if found:
            self._misses = 0
            self._let_go()
            incarnation.matcher.adjacent = bool(found.next_adjacent)
            self.entries[self.entries.index(None)] = incarnation, incarnation.matcher.nodes[-1]

    def left(self, nodes):
        """Remove nodes from the cache, each at its time."""
        for node, at in nodes:
            self._leaving.append((at, next(k for k, entry in enumerate(self.entries) if entry and entry[1] is node)))

    def _let_go(self):
        """Free the entries of removed nodes."""
        now = self.card.loop.now_ns
        for gone, entry in self._leaving:
            if gone <= now:
                self.entries[entry] = None
        self._leaving = [leave for leave in self._leaving if leave[0] > now]

    # ---------------------------------------------------------------------------------------------- eviction

    def _evict(self, incarnation):
        """Evict a node for a list with waiting headers or without a node, from a full cache.

        The victim is the last node of another list; after too many attempts, a head is forced to retire.
        """
        limit, urgent = 4 * len(self.entries) + EVICT_LIMIT, bool(incarnation.matcher.waiting)
        self._let_go()
        candidate = self._candidate() if self._misses < CANDIDATE_CHECKS else None
        if not urgent and (incarnation.matcher.nodes or candidate is None):
            return
        if candidate is not None:
            self._victim = candidate
        if urgent:
            self._misses = min(self._misses + 1, limit)
        entry, gave = self.entries[self._victim], False
        self._victim = (self._victim + 1) % len(self.entries)
        if entry:
            other, node = entry
            if urgent and self._misses >= (limit // 2 if not other.matcher.waiting else limit):
                self._misses = 0
                self._force(other)
            elif not other.matcher.waiting and not node.touched:
                gave = self._give_back(other, node)
        if urgent or gave:
            self.look(incarnation, OWN + CYCLE_NS)

    def _give_back(self, other, node):
        """Evict a node if it is the last one of its list, and drop what was read after it; return whether it was."""
        nodes = other.matcher
        if nodes.destroyed or not nodes.ends_with(node) or (nodes.read and not nodes.read.kept):
            return False
        if nodes.read:
            self._finish(nodes.read)
        nodes.take_back(node.line)
        self.left([(node, self.card.loop.now_ns)])
        self.look(other, OWN + CYCLE_NS)
        return True

    def _candidate(self):
        """Return the first entry with an untouched last node that is not also its list's first node, or None."""
        return next((at for at, entry in enumerate(self.entries) if entry and not entry[1].touched
                     and len(entry[0].matcher.nodes) > 1 and entry[0].matcher.ends_with(entry[1])), None)
