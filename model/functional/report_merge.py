"""Order of the reports of one packet: reports of one block keep their order, those of different blocks need not."""

from collections import deque


class ReportMerge:
    """Collects report entries by source and merges them.

    Parameters
    ----------
    random : random.Random or None
        Chooses among the sources; without it, sources follow in the order of their first entry.
    """

    def __init__(self, random):
        self.random = random
        self._queues = {}

    def add(self, source, entry):
        self._queues.setdefault(source, deque()).append(entry)

    def drain(self):
        """Yield all (source, entry), merged."""
        queues = [(source, q) for source, q in self._queues.items() if q]
        while queues:
            source, queue = self.random.choice(queues) if self.random else queues[0]
            yield source, queue.popleft()
            queues = [(s, q) for s, q in queues if q]
