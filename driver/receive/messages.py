"""Messages of the peer: ends arrive in any order and repeatedly; each message is delivered once, in order."""

import functools
import heapq
from dataclasses import dataclass

from ..protocol.message_end import Kind, MessageEnd, message_end


@dataclass(slots=True)
class Message:
    """A message of the peer: PSN of its last packet, and contents of its message end.

    For a plain write, ``end`` holds only the length of the last packet.
    """

    psn: int
    end: MessageEnd


@functools.lru_cache(maxsize=64)
def _plain(length):
    """Return the end of a plain write, one shared object for each length."""
    return MessageEnd(Kind.WRITE, None, length)


def _end_of(report):
    """Return the message end that a MESSAGE_END report with an immediate describes."""
    if report.length:
        return MessageEnd(Kind.WRITE_IMM, None, report.length, imm=report.imm, has_imm=1)
    return message_end(report.va, report.key, report.imm)


class MessageOrder:
    """Known message ends, until every packet before them is in place.

    Attributes
    ----------
    heap : list of int
        PSNs of the waiting ends.
    """

    def __init__(self):
        self._ends = {}      # psn -> Message
        self.heap = []
        self._released = None   # every end below this PSN was delivered; a later report of one is a duplicate

    def add(self, psn, report):
        """Add a MESSAGE_END report, unless its message was delivered or is known."""
        if psn not in self._ends and (self._released is None or psn >= self._released):
            self._ends[psn] = Message(psn, _end_of(report) if report.has_imm else _plain(report.length))
            heapq.heappush(self.heap, psn)

    def release(self, cum, complete):
        """Append the messages that are complete to ``complete``, in order. Every PSN below ``cum`` is in place."""
        self._released, heap = cum, self.heap
        while heap and heap[0] < cum:
            complete.append(self._ends.pop(heapq.heappop(heap)))
