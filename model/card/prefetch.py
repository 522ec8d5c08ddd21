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
LAND = 6 * CYCLE_NS         # from the choice of a finished read until the fill of its first block
KEPT = 4 * CYCLE_NS         # from the check of a list to the fill of its kept blocks
SPARE_LOOKS = 4     # attempts that prefer the last node of a list as the victim
CHECK = 2 * CYCLE_NS        # from the choice of an entry to the fill
COUNTED = 2 * CYCLE_NS      # from the removal of a node until its entry counts as free
LISTED = 3 * CYCLE_NS       # from the removal of a node until its list no longer counts it


class Fetch(Read):
    """Read of consecutive blocks of a list. ``blocks``: its data, or None; ``kept``: the data arrived, but there was no
    entry for it; ``loose``: it may be dropped when its slot is needed."""

    __slots__ = ("blocks", "count", "kept", "life", "line", "loose")


class Prefetcher:
    """Prefetcher of the lists of all QPs.

    Parameters
    ----------
    card : TimedCard
    wake : callable(``life``)
        Called when a list has another node.
    force : callable(``life``)
        Called when the head of a list must retire.
    """

    def __init__(self, card, wake, force):
        self.card, self._wake, self._force = card, wake, force
        self._work, self._in = deque(), set()       # (`life`, time from which it may be checked); lists in the queue
        self._came = deque()        # (`life`, read, time at which it is visible), in that order
        self._full = []             # lists that wait for the end of a read
        self._reads = [None] * min(NODE_READS_MAX, card.params.cache_entries)
        self._free_at = 0.0         # end of the current operation
        self._shown_at = 0.0        # time at which finished reads are visible again
        self._next = None           # time of the next choice
        self.entries = [None] * card.params.cache_entries      # of the cache: (`life`, node) or None
        self._leaving = []          # (time, entry) of nodes that are no longer matched
        self._victim = self._misses = 0

    # ------------------------------------------------------------------------------------------ waiting work

    def look(self, life, lag=0.0, first=None):
        """Request a check of a list, now or after ``lag``.

        ``first``: delay from then until the list may be chosen; None: the delay of a request of the matcher.
        """
        until = lag + (self.card.timing.look if first is None else first)
        self.card.loop.call_in(until - WORK, self._enter, life)

    def _enter(self, life):
        """Put a list into the waiting list, unless it is there."""
        if life not in self._in:
            self._in.add(life)
            self._work.append((life, self.card.loop.now_ns + WORK))
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
            life, read, _ = self._came.popleft()
            self._free_at = now + LAND + (read.count - 1) * BLOCK + PASS
            self.card.loop.call_at(now + LAND, self._land, life, read, 0)
        elif self._work and self._work[0][1] <= now:
            life, _ = self._work.popleft()
            self._in.discard(life)
            self._free_at = now + PASS
            self.card.loop.call_at(now + LOOK, self._look, life, False)
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

    def _look(self, life, filling):
        nodes, registers, now = life.matcher, self.card.registers, self.card.loop.now_ns
        depth, waiting = max(1, registers["prefetch_depth"]), bool(nodes.waiting)
        cached, ahead = self.cached(life, now - LISTED), nodes.linked - nodes.fetched
        if nodes.dead:
            return
        if nodes.read and nodes.read.kept:
            self._free_at = max(self._free_at, now + KEPT + (nodes.read.count - 1) * BLOCK + PASS)
            nodes.read.kept = False
            self.card.loop.call_in(KEPT, self._land, life, nodes.read, 0)
            return
        if nodes.read or ahead <= 0 or cached >= depth:
            return
        if not (waiting or filling or cached < registers["prefetch_watermark"]):
            return
        if None not in self._reads:
            self._make_place(life, waiting or not cached)
            return
        count = 1
        if nodes.adjacent:
            spare = max(1, self._free(now - COUNTED) - self._reserve)
            count = min(REQUEST_LINES_MAX, depth - cached, ahead, spare, abi.PAGE_LINES - nodes.line % abi.PAGE_LINES)
        self._free_at = max(self._free_at, now + 2 * CYCLE_NS)
        self._issue(life, count)

    def cached(self, life, at):
        """Return the number of cached nodes of a list, as counted at a time."""
        return len(life.matcher.nodes) + len(life.matcher.ended) + sum(
            gone > at and self.entries[entry][0] is life for gone, entry in self._leaving)

    def _free(self, at):
        """Return the number of free entries, as counted at a time."""
        return self.entries.count(None) + sum(gone <= at for gone, _ in self._leaving)

    @property
    def _reserve(self):
        """Number of entries that stay free for first nodes, and for nodes that a header waits for."""
        return len(self.entries) // 8

    def _make_place(self, life, needed):
        """Free a slot for a read: drop the kept blocks of another list, or wait for the end of a read."""
        loose = next((read for read in self._reads if read.kept and read.loose), None)
        if needed and loose:
            self._finish(loose)
            self.look(life, OWN + 2 * CYCLE_NS)
        elif life.matcher.waiting or any(not read.kept for read in self._reads):
            self._full.append(life)

    def _issue(self, life, count):
        nodes, loop, timing = life.matcher, self.card.loop, self.card.timing
        self.card.counters["prefetches"] += 1
        read = Fetch(nodes.line * abi.BLOCK_BYTES, count * abi.BLOCK_BYTES,
                     lambda done: self._answered(life, read, done))
        read.life, read.line, read.count, read.kept, read.loose = life, nodes.line, count, False, False
        read.blocks = None
        nodes.read = self._reads[self._reads.index(None)] = read
        self.card.line_read(loop.now_ns + CYCLE_NS + timing.ask, LINE_ADAMAP, read)

    def _finish(self, read):
        """Release the slot of a read, and request checks of the lists that waited for that."""
        self._reads[self._reads.index(read)] = read.life.matcher.read = None
        for other in self._full:
            self.look(other, OWN)
        self._full.clear()

    def forget(self, life):
        """Drop the kept blocks of a destroyed QP."""
        if life.matcher.read and life.matcher.read.kept:
            self._finish(life.matcher.read)

    def _answered(self, life, read, done):
        read.blocks = life.matcher.blocks(read.line, read.count)
        at = done + self.card.timing.line + (read.count - 1) * CYCLE_NS     # line by line
        self._came.append((life, read, at))
        self._choose_at(at)

    # ------------------------------------------------------------------------------------------------- fills

    def _land(self, life, read, part):
        """Fill an entry with a block of a read, if the block is the list's next node and an entry is available."""
        nodes, checked = life.matcher, self.card.loop.now_ns - CHECK
        if nodes.read is not read:      # the QP was destroyed
            return
        if not nodes.dead and nodes.line == read.line + part and not self._grew(nodes, read, part):
            if self._free(checked) and (nodes.waiting or not self.cached(life, checked - LISTED)
                                        or self._free(checked - COUNTED) > self._reserve):
                self._take(life)
                self._wake(life)
            elif not part and self._sound(life):
                self._keep(life, read)
                return
        if part + 1 < read.count:
            self.card.loop.call_in(BLOCK, self._land, life, read, part + 1)
            return
        self._finish(read)
        if not nodes.dead:
            self._free_at = max(self._free_at, self.card.loop.now_ns + PASS)
            self.card.loop.call_in(LOOK, self._look, life, True)

    @staticmethod
    def _grew(nodes, read, part):
        """Return whether a node was linked after a block since the block was read, so that its pointer is outdated."""
        if part + 1 != read.count or nodes.fetched + 1 == nodes.linked or read.blocks is None:
            return False
        return not abi.NODE.unpack(read.blocks[part]).next_line and not damage(read.blocks[part])

    def _keep(self, life, read):
        """Keep a read for which no entry is available."""
        self._free_at = self.card.loop.now_ns + CYCLE_NS
        self._shown_at = self._free_at + CYCLE_NS
        read.kept, read.loose = True, not life.matcher.waiting
        self._turn_out(life)

    def _sound(self, life):
        """Return whether the block continues the list; otherwise stop the list."""
        nodes = life.matcher
        line, adjacent = nodes.line, nodes.adjacent
        found = self._read_node(life)
        if found:
            nodes.take_back(line, adjacent)
        return bool(found)

    def _read_node(self, life):
        """Return the block as the list's next node; None if it is invalid."""
        try:
            return life.matcher.fetch_next()
        except BrokenList as broken:
            life.matcher.dead = True
            self.card.receive_path.broken(life, broken)
            return None

    def _take(self, life):
        found = self._read_node(life)
        if found:
            self._misses = 0
            self._let_go()
            life.matcher.adjacent = bool(found.next_adjacent)
            self.entries[self.entries.index(None)] = life, life.matcher.nodes[-1]

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

    def _turn_out(self, life):
        """Evict a node for a list with waiting headers or without a node, from a full cache.

        The victim is the last node of another list; after too many attempts, a head is forced to retire.
        """
        patience, urgent = 4 * len(self.entries) + EVICT_LIMIT, bool(life.matcher.waiting)
        self._let_go()
        spare = self._spare() if self._misses < SPARE_LOOKS else None
        if not urgent and (life.matcher.nodes or spare is None):
            return
        if spare is not None:
            self._victim = spare
        if urgent:
            self._misses = min(self._misses + 1, patience)
        entry, gave = self.entries[self._victim], False
        self._victim = (self._victim + 1) % len(self.entries)
        if entry:
            other, node = entry
            if urgent and self._misses >= (patience // 2 if not other.matcher.waiting else patience):
                self._misses = 0
                self._force(other)
            elif not other.matcher.waiting and not node.touched:
                gave = self._give_back(other, node)
        if urgent or gave:
            self.look(life, OWN + CYCLE_NS)

    def _give_back(self, other, node):
        """Evict a node if it is the last one of its list, and drop what was read after it; return whether it was."""
        nodes = other.matcher
        if nodes.dead or not nodes.ends_with(node) or (nodes.read and not nodes.read.kept):
            return False
        if nodes.read:
            self._finish(nodes.read)
        nodes.take_back(node.line)
        self.left([(node, self.card.loop.now_ns)])
        self.look(other, OWN + CYCLE_NS)
        return True

    def _spare(self):
        """Return the first entry with an untouched last node that is not also its list's first node, or None."""
        return next((at for at, entry in enumerate(self.entries) if entry and not entry[1].touched
                     and len(entry[0].matcher.nodes) > 1 and entry[0].matcher.ends_with(entry[1])), None)
