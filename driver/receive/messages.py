"""Messages of the peer: ends arrive in any order and more than once, deliveries come once and in order."""

import heapq
from dataclasses import dataclass

from ..protocol.message_end import Kind, MessageEnd, message_end


@dataclass(slots=True)
class Message:
    """A message of the peer: PSN of its last packet, and what its end says.

    Of plain writes ``end`` knows no more than how long the last packet was.
    """

    psn: int
    end: MessageEnd


def _end_of(report):
    """What a MESSAGE_END report says of its message."""
    if not report.has_imm:
        return MessageEnd(Kind.WRITE, None, report.length)
    if report.length:
        return MessageEnd(Kind.WRITE_IMM, None, report.length, imm=report.imm, has_imm=1)
    return message_end(report.va, report.key, report.imm)


class MessageOrder:
    """Message ends that are known, until everything before them is in place.

    Attributes
    ----------
    heap : list of int
        PSNs of those that wait.
    """

    def __init__(self):
        self._ends = {}      # psn -> Message
        self.heap = []
        self._released = None   # every end below this PSN was delivered: none is reported behind what lets it pass

    def add(self, psn, report):
        """A MESSAGE_END report."""
        if psn not in self._ends and (self._released is None or psn >= self._released):
            self._ends[psn] = Message(psn, _end_of(report))
            heapq.heappush(self.heap, psn)

    def release(self, cum, complete):
        """Every PSN below ``cum`` is in place: ``complete`` gets the messages that are, in order."""
        self._released, heap = cum, self.heap
        while heap and heap[0] < cum:
            complete.append(self._ends.pop(heapq.heappop(heap)))
