"""Reports of the timing model before their ring, as in ``hdl/report.py``.

Each report waits for the placement of its packet; then the reports of all sources merge.
"""

from collections import deque

from .timing import CYCLE_NS

EVENT, NODE, RETIRE = "event", "node", "retire"     # sources


class Reporter:
    """Delays and merges reports: one per cycle, events first, the other sources in round robin.

    Each source keeps its order.

    Parameters
    ----------
    card : TimedCard
        Receives the reports with ``report(entry)``.
    """

    def __init__(self, card):
        self.card = card
        self._kept = {EVENT: deque(), RETIRE: deque()}      # (time, ticket, entry) that wait for their packets
        self._queues = {source: deque() for source in (EVENT, NODE, RETIRE)}    # at the merge
        self._busy, self._turn = False, (NODE, RETIRE)      # sources besides events; the last one was served last

    @property
    def _gone(self):
        """True after a reset of the card."""
        return self.card.receive_path.reporter is not self

    def keep(self, source, time_ns, ticket, entry):
        """Pass on a report at a time, or later when the packet with this ticket is placed."""
        queue = self._kept[source]
        queue.append((time_ns, ticket, entry))
        if len(queue) == 1:
            self._look(source)

    def _look(self, source):
        """Pass on the oldest reports of a source whose packets are placed."""
        if self._gone:
            return
        loop, queue, timing = self.card.loop, self._kept[source], self.card.timing
        delay = timing.placed if source == EVENT else timing.placed_retire
        while queue:
            time_ns, ticket, entry = queue[0]
            placed = self.card.pcie.writes.placed(ticket)
            if placed is None:
                loop.call_at(self.card.pcie.writes.again, self._look, source)
                return
            at = max(time_ns, placed + delay)
            if at > loop.now_ns:
                loop.call_at(at, self._look, source)
                return
            queue.popleft()
            self.enter(source, entry)

    def enter(self, source, entry):
        """Put a report into the merge."""
        if not self._gone:
            self._queues[source].append(entry)
            if not self._busy:
                self._busy = True
                self.card.loop.call_in(0.0, self._merge)

    def _merge(self):
        if self._gone:
            return
        source = next((source for source in (EVENT, *self._turn) if self._queues[source]), None)
        self._busy = source is not None
        if self._busy:
            if source == self._turn[0]:
                self._turn = self._turn[1:] + self._turn[:1]
            self.card.report(self._queues[source].popleft())
            self.card.loop.call_in(CYCLE_NS, self._merge)
