"""Queue pairs of a host, each with requester and responder, and the dispatch of packets to them."""

from ...device.index_pool import IndexPool
from .qp import Mode
from .requester import Requester
from .responder import Responder


class QpTable:
    """Queue pairs by number.

    Parameters
    ----------
    size : int
    counts : Counter
        ``unknown_qp``, ``not_connected`` and ``foreign_sender`` count packets of no connection, by reason.
    """

    def __init__(self, size, counts):
        self._numbers, self._sides, self.counts = IndexPool(size, "queue pairs"), {}, counts
        self._turn = 0

    def add(self, make, regions, transmit, buffers, payload_max):
        """Add a queue pair, ``make(number)``, with requester and responder; raise MemoryError if the table is full."""
        qp = make(self._numbers.take())
        self._sides[qp.id] = (Requester(qp, regions, transmit, self.counts, payload_max),
                              Responder(qp, regions, transmit, buffers, self.counts, payload_max))
        return qp

    def remove(self, number):
        """Remove a queue pair, free its number, and return its ``(Requester, Responder)``."""
        self._numbers.release(number)
        return self._sides.pop(number)

    def get(self, number):
        """Return the :class:`~weft.driver.soft.raw.qp.QueuePair` of a number, or None."""
        return self._sides[number][0].qp if number in self._sides else None

    def of_packet(self, packet):
        """Return the ``(Requester, Responder)`` of a packet, or count it and return None if it is of no connection."""
        sides = self._sides.get(packet.dst_qp)
        if sides is None:
            self.counts["unknown_qp"] += 1
        elif sides[0].qp.mode is not Mode.NETWORK or not sides[0].qp.connected:
            self.counts["not_connected"] += 1
        elif not sides[0].qp.is_peer(packet):
            self.counts["foreign_sender"] += 1
        else:
            return sides
        return None

    def in_turns(self):
        """Return all requesters; the first one rotates with each call."""
        requesters = [requester for requester, _ in self._sides.values()]
        self._turn = (self._turn + 1) % max(1, len(requesters))
        return requesters[self._turn:] + requesters[:self._turn]
