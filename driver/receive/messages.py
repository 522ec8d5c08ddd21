"""Messages of the peer: ends arrive in any order and more than once, deliveries come once and in order."""

import collections
import heapq
from dataclasses import dataclass

DELIVERED_KEPT = 1 << 16  # ends remembered against repeated reports


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
        self._released = collections.OrderedDict()

    def add(self, psn, report):
        """A MESSAGE_END report."""
        if psn not in self._ends and psn not in self._released:
            apart = report.has_imm and not report.length   # see :func:`weft.driver.protocol.segment.split`
            self._ends[psn] = MessageEnd(psn, report.imm if report.has_imm else None,
                                         report.key if apart else report.length, report.va)
            heapq.heappush(self._heap, psn)

    def release(self, cum):
        """Messages that are complete now that every PSN below ``cum`` is in place, in order."""
        while self._heap and self._heap[0] < cum:
            psn = heapq.heappop(self._heap)
            self._released[psn] = None
            if len(self._released) > DELIVERED_KEPT:
                self._released.popitem(last=False)
            yield self._ends.pop(psn)
