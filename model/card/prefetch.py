"""The prefetcher in time: one look after the other at lists that may want nodes, reads of blocks, nodes that land.

The steps and their lengths are those of ``hdl/adamap/prefetch.py``; a step is a cycle.
"""

from collections import deque

from weft.hdl import abi

from ..functional.node_list import BrokenList
from .pcie import LINE_ADAMAP, Read
from .timing import CYCLE_NS

READS_MAX = 8       # under way; see hdl/adamap/fetches.py
READ_LINES = 4      # of one read
PAGE_LINES = abi.PAGE_4K // abi.BLOCK_BYTES
PATIENCE = 128      # beside 4 for each entry, see hdl/adamap/prefetch.py
LOOK = 4 * CYCLE_NS         # from the choice of a list to what comes of it
PASS = LOOK + CYCLE_NS      # of a look that nothing comes of
BLOCK = 4 * CYCLE_NS        # between the blocks of a read


class Fetch(Read):
    """A read of consecutive blocks of a list, and the places of the cache kept for them."""

    __slots__ = ("count", "line", "places")


class Prefetcher:
    """Watches the lists of all QPs.

    Parameters
    ----------
    card : TimedCard
    wake : callable(life)
        A list has another node.
    force : callable(life)
        The head of a list must go.
    """

    def __init__(self, card, wake, force):
        self.card, self._wake, self._force = card, wake, force
        self._work, self._in = deque(), set()       # (life, when it may be looked at); which lists are in
        self._came = deque()        # (life, read, when it is seen), in that order
        self._full = []             # lists that wait for a read to end
        self._reads = 0
        self._free_at = 0.0         # when it is done with what it does
        self._next = None           # when it chooses next
        self.entries = [None] * card.params.cache_entries      # of the cache: (life, node), _RESERVED, or None
        self._victim = self._misses = 0

    # ------------------------------------------------------------------------------------- what is to be done

    def look(self, life, lag=0.0, first=None):
        """There is reason to look at a list; one that waits for that already waits for it once.

        ``first``: from then until it may be chosen, if it is not what the matcher needs.
        """
        loop = self.card.loop
        if lag:
            loop.call_at(loop.now_ns + lag, self.look, life)
        elif life not in self._in:
            self._in.add(life)
            self._work.append((life, loop.now_ns + (self.card.timing.look if first is None else first)))
            self._choose_at(self._work[0][1])

    def _choose_at(self, time_ns):
        at = max(time_ns, self._free_at)
        if self._next is None or at < self._next:
            self._next = at
            self.card.loop.call_at(at, self._choose, at)

    def _choose(self, at):
        """What has come goes before what is to be looked at."""
        if at != self._next or self.card.second_level.prefetcher is not self:
            return
        self._next = None
        now = self.card.loop.now_ns
        if now < self._free_at:
            pass
        elif self._came and self._came[0][2] <= now:
            life, read, _ = self._came.popleft()
            self._free_at = now + LOOK + (read.count - 1) * BLOCK + PASS + CYCLE_NS
            self.card.loop.call_at(now + LOOK, self._land, life, read, 0)
        elif self._work and self._work[0][1] <= now:
            life, _ = self._work.popleft()
            self._in.discard(life)
            self._free_at = now + PASS
            self.card.loop.call_at(now + LOOK, self._look, life, False)
        self._go_on()

    def _go_on(self):
        due = [queue[0][-1] for queue in (self._came, self._work) if queue]
        if due:
            self._choose_at(min(due))

    # -------------------------------------------------------------------------------------- a look at a list

    def _look(self, life, filling):
        nodes, registers, now = life.matcher, self.card.registers, self.card.loop.now_ns
        depth, waiting = max(1, registers["prefetch_depth"]), bool(nodes.waiting)
        cached, ahead = len(nodes.nodes), nodes.linked - nodes.fetched
        if nodes.dead or nodes.reading or ahead <= 0 or cached >= depth:
            return
        if not (waiting or filling or cached < registers["prefetch_watermark"]):
            return
        free = self.entries.count(None)
        reserve = 0 if waiting else len(self.entries) // 4
        if free <= reserve:
            if waiting:
                self._turn_out(life)
            return
        if self._reads == READS_MAX:
            self._full.append(life)
            return
        count = 1
        if nodes.adjacent:
            count = min(READ_LINES, depth - cached, ahead, free - reserve, PAGE_LINES - nodes.line % PAGE_LINES)
        self._free_at = max(self._free_at, now + (count + 2) * CYCLE_NS)
        self._misses = 0
        self._issue(life, count)

    def _issue(self, life, count):
        nodes, loop, timing = life.matcher, self.card.loop, self.card.timing
        nodes.reading = True
        self._reads += 1
        self.card.counters["prefetches"] += 1
        places = []
        for _ in range(count):
            places.append(self.entries.index(None))
            self.entries[places[-1]] = _RESERVED
        read = Fetch(nodes.line * abi.BLOCK_BYTES, count * abi.BLOCK_BYTES,
                     lambda done: self._answered(life, read, done))
        read.line, read.count, read.places = nodes.line, count, places
        self.card.line_read(loop.now_ns + (count + 1) * CYCLE_NS + timing.ask, LINE_ADAMAP, read)

    def _answered(self, life, read, done):
        at = done + self.card.timing.line + (read.count - 1) * CYCLE_NS     # line by line
        self._came.append((life, read, at))
        self._choose_at(at)

    # ---------------------------------------------------------------------------------------- nodes that land

    def _land(self, life, read, part):
        """A block of a read becomes a node, if it is the list's next one."""
        nodes = life.matcher
        if nodes.dead or nodes.line != read.line + part:
            for place in read.places[part:]:
                self.entries[place] = None
        else:
            self._take(life, read.places[part])
            self._wake(life)
        if part + 1 < read.count:
            self.card.loop.call_in(BLOCK, self._land, life, read, part + 1)
            return
        nodes.reading = False
        self._reads -= 1
        for other in self._full:
            self.look(other)
        self._full.clear()
        if not nodes.dead:
            self._free_at = max(self._free_at, self.card.loop.now_ns + PASS)
            self.card.loop.call_in(LOOK, self._look, life, True)

    def _take(self, life, place):
        nodes = life.matcher
        try:
            found = nodes.fetch_next()
        except BrokenList as broken:
            nodes.dead, self.entries[place] = True, None
            self.card.receive_path.broken(life, broken)
            return
        nodes.adjacent = bool(found.next_adjacent)
        self.entries[place] = life, nodes.nodes[-1]

    def left(self, nodes):
        """These left the cache."""
        for node in nodes:
            at = next(at for at, entry in enumerate(self.entries) if entry and entry[1] is node)
            self.entries[at] = None

    # ------------------------------------------------------------------------------- nodes that are turned out

    def _turn_out(self, life):
        """The cache is full and headers wait: another list gives a node back, or its head goes."""
        patience = 4 * len(self.entries) + PATIENCE
        misses = self._misses = min(self._misses + 1, patience)
        entry = self.entries[self._victim]
        self._victim = (self._victim + 1) % len(self.entries)
        if entry and entry is not _RESERVED:
            other, node = entry
            if misses >= (patience // 2 if not other.matcher.waiting else patience):
                self._misses = 0
                self._force(other)
            elif not other.matcher.waiting and not node.touched and other.matcher.give_back(node):
                self.left([node])
        self.look(life, CYCLE_NS)


_RESERVED = (None, None)
