"""Messages of the peer: ends arrive in any order and more than once, deliveries come once and in order."""

import heapq
from dataclasses import dataclass


@dataclass
class MessageEnd:
    """A message: PSN of its last packet, and the immediate if it had one.

    With an immediate ``length`` and ``va`` are those of the message, otherwise of its last packet.
    """

    psn: int
    imm: int | None
    length: int
    va: int


class MessageOrder:
    """Message ends that are known, until everything before them is in place."""

    def __init__(self):
        self._ends = {}      # psn -> MessageEnd
        self._heap = []
        self._released = None   # every end below this PSN was delivered: none is reported behind what lets it pass

    def __len__(self):
        """Ends that wait."""
        return len(self._heap)

    def add(self, psn, report):
        """A MESSAGE_END report."""
        if psn not in self._ends and (self._released is None or psn >= self._released):
            apart = report.has_imm and not report.length   # see :func:`weft.driver.protocol.segment.split`
            self._ends[psn] = MessageEnd(psn, report.imm if report.has_imm else None,
                                         report.key if apart else report.length, report.va)
            heapq.heappush(self._heap, psn)

    def release(self, cum):
        """Messages that are complete now that every PSN below ``cum`` is in place, in order."""
        self._released = cum
        while self._heap and self._heap[0] < cum:
            yield self._ends.pop(heapq.heappop(self._heap))
