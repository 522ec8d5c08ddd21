"""Rings of the timing model on the card's side: descriptors are prefetched, and entries take time to reach memory."""

from collections import deque

from weft.hdl.contract import abi
from weft.hdl.contract.params import REQUEST_LINES_MAX

from ..functional.rings import BadEntry, CardRings
from .pcie import Read
from .timing import CYCLE_NS
from .write_engine import NEVER, RINGS

Ring = abi.Ring
_CONS = {f"{ring.name.lower()}_cons": ring for ring in abi.CARD_TO_HOST}
_LOG2 = {f"{ring.name.lower()}_log2": ring for ring in abi.HOST_TO_CARD}
_CLIENT = {ring: RINGS + at for at, ring in enumerate(abi.CARD_TO_HOST)}      # of the write engine
_LINE_CLIENT = {ring: at for at, ring in enumerate(abi.HOST_TO_CARD)}
STANDING = 2        # descriptors between reorder buffer and consumer, see hdl/ring/reorder_buffer.py and reader.py


class TimedRings(CardRings):
    """:class:`CardRings` with fetches of descriptors, and with entries that take time to reach memory.

    :meth:`peek` shows descriptors that arrived; :meth:`take` frees space for further fetches.
    """

    def __init__(self, card):
        super().__init__(card)
        self._storing = dict.fromkeys(abi.CARD_TO_HOST, 0)     # entries that the write engine has not taken
        self._taken = {ring: deque() for ring in abi.CARD_TO_HOST}      # times at which it took the newest entries
        self._owed = {}             # ring whose next entry causes an interrupt -> earliest time of it
        self._armed_at = dict.fromkeys(abi.CARD_TO_HOST, 0.0)     # time of the newest doorbell that armed it
        self._asked = dict.fromkeys(abi.HOST_TO_CARD, 0)     # index after the last requested descriptor
        self._held = dict.fromkeys(abi.HOST_TO_CARD, 0)      # requested descriptors that occupy the reorder buffer
        self._standing = dict.fromkeys(abi.HOST_TO_CARD, 0)     # oldest arrived ones, which have left the buffer
        self._ready = {ring: deque() for ring in abi.HOST_TO_CARD}
        self._reads = {ring: deque() for ring in abi.HOST_TO_CARD}     # [index, count, came], oldest first

    def written(self, name, value):
        super().written(name, value)
        ring = _LOG2.get(name)
        if ring is not None:
            self._asked[ring] = self._held[ring] = 0
            self._standing[ring] = 0
            self._ready[ring].clear()
            self._reads[ring].clear()

    # ----------------------------------------------------------------------------------- host to card

    def fetch(self, ring, delay=None):
        """Request available descriptors as far as the buffer has space; ``delay`` None: that after a doorbell."""
        if self.prod[ring] == self._asked[ring]:
            return
        slots, size = self.card.params.prefetch(ring), 1 << self._log2(ring)
        if delay is None:
            delay = self.card.timing.ring_fetch
        while self.enabled(ring) and (left := (self.prod[ring] - self._asked[ring]) % self._wrap(ring)):
            at = self._asked[ring]
            address = self._address(ring, at)
            to_page = abi.PAGE_LINES - address // abi.BLOCK_BYTES % abi.PAGE_LINES
            count = min(REQUEST_LINES_MAX, left, size - at % size, to_page)
            if self._held[ring] + count > slots:
                return
            self._asked[ring] = (at + count) % self._wrap(ring)
            self._held[ring] += count
            order = [at, count, False]
            self._reads[ring].append(order)
            read = Read(address, count * abi.BLOCK_BYTES, lambda done, order=order: self.card.loop.call_at(
                done + self.card.timing.delivered, self._came, ring, order))
            self.card.line_read(self.card.loop.now_ns + delay, _LINE_CLIENT[ring], read)
            delay += 3 * CYCLE_NS

    def pushed(self, window, data=None):
        """Process a pushed descriptor; it is not read if it is the only one that was not requested."""
        ring = abi.PUSH_RINGS[window // abi.PUSH_WINDOWS]
        at = self.prod[ring]
        super().pushed(window, data)
        if data and self.prod[ring] != at == self._asked[ring] and self._held[ring] < self.card.params.prefetch(ring):
            self._asked[ring] = self.prod[ring]
            self._held[ring] += 1
            order = [at, 1, False]
            self._reads[ring].append(order)
            self.card.loop.call_at(self.card.loop.now_ns + self.card.timing.pushed, self._came, ring, order)

    def _came(self, ring, order):
        """Process a finished read; descriptors are delivered in the order of the ring."""
        order[2], reads = True, self._reads[ring]
        if self.card.rings is not self or order not in reads:
            return      # after a reset of the card or of the ring
        while reads and reads[0][2]:
            index, count, _ = reads.popleft()
            now = self.card.loop.now_ns
            self._ready[ring].extend((self._arrived(ring, (index + k) % self._wrap(ring)), now) for k in range(count))
        self._skip(ring)
        self._offer(ring)
        self.card.descriptors(ring)

    def _arrived(self, ring, index):
        """Return a descriptor, or BadEntry, with its index."""
        try:
            return self.entry(ring, index)
        except BadEntry as entry:
            entry.index = index
            return entry

    def _skip(self, ring):
        """Drop bad descriptors when all before them are finished; return whether there was one."""
        ready, before = self._ready[ring], self.cons[ring]
        while ready and isinstance(entry := ready[0][0], BadEntry) and entry.index == self.cons[ring]:
            self.take(ring)
            self.bad(ring, entry)
            self.cons[ring] = (entry.index + 1) % self._wrap(ring)
            self.notify()
        return self.cons[ring] != before

    def finish(self, ring):
        super().finish(ring)
        if self._skip(ring):
            self.card.descriptors(ring)

    def _offer(self, ring):
        """Move the oldest descriptors out of the reorder buffer toward their consumer, and refill the buffer."""
        while self._standing[ring] < min(STANDING, len(self._ready[ring])):
            self._standing[ring] += 1
            self._held[ring] -= 1
            self.fetch(ring, self.card.timing.ring_refill)

    def peek(self, ring):
        """Return the oldest descriptor that arrived and was not taken, or None."""
        ready = self._ready[ring]
        return ready[0][0] if ready and not isinstance(ready[0][0], BadEntry) else None

    def came(self, ring):
        """Return the arrival time of the descriptor that :meth:`peek` shows."""
        return self._ready[ring][0][1]

    def take(self, ring):
        """Remove and return the oldest descriptor."""
        entry, _ = self._ready[ring].popleft()
        self._standing[ring] -= 1
        self._offer(ring)
        return entry

    def notify(self):
        """Schedule a write of the status block."""
        if self.card.registers["status_block"]:
            self.card.report_status()

    # ----------------------------------------------------------------------------------- card to host

    def store(self, ring, address, data):
        """Write an entry; that of a raw frame waits until its frame is written."""
        self._storing[ring] += 1
        time = NEVER if ring is Ring.NIC_RX else self.card.loop.now_ns
        self.newest = self.card.post(_CLIENT[ring], address, data, time, lambda last: self._in_flight(ring, last))

    def _in_flight(self, ring, last):
        """Send the interrupt that an entry caused after the write engine took the entry."""
        self._storing[ring] -= 1
        self._taken[ring].append(last)
        if ring in self._owed:
            self._notify_host(ring, max(last, self._owed.pop(ring)))

    def _notify_host(self, ring, time_ns):
        self.card.interrupts.pend(abi.VECTOR[ring], time_ns + self.card.timing.interrupt)

    def doorbell(self, name, value):
        ring = _CONS.get(name)
        if ring is not None and not self.armed[ring]:
            self._armed_at[ring] = self.card.loop.now_ns
        super().doorbell(name, value)

    def _interrupt(self, ring):
        """Request an interrupt as the functional card does, but after the entry and the arming doorbell."""
        if self.armed[ring] and self.prod[ring] != self.cons[ring]:
            self.armed[ring] = False
            now, taken = self.card.loop.now_ns, self._taken[ring]
            while taken and taken[0] <= now:
                taken.popleft()
            ahead = (self.prod[ring] - self.cons[ring]) % self._wrap(ring) - self._storing[ring]    # of the others
            armed = self._armed_at[ring] + self.card.timing.doorbell
            if ahead <= 0:      # less than 0 if the ring was stopped in the meantime
                self._owed[ring] = armed
            else:
                first = taken[-ahead] if ahead <= len(taken) else now
                self._notify_host(ring, max(armed, first))
