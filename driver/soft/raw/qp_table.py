"""The queue pairs of a host, each with its two sides, and whose packet is whose."""

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
        ``unknown_qp``, ``not_connected`` and ``foreign_sender`` tell of packets that were of no connection.
    """

    def __init__(self, size, counts):
        self._numbers, self._sides, self.counts = IndexPool(size, "queue pairs"), {}, counts
        self._turn = 0

    def add(self, make, regions, transmit, buffers, payload_max):
        """A new queue pair, ``make(number)``, and its sides; MemoryError if there are as many as there can be."""
        qp = make(self._numbers.take())
        self._sides[qp.id] = (Requester(qp, regions, transmit, self.counts, payload_max),
                              Responder(qp, regions, transmit, buffers, self.counts, payload_max))
        return qp

    def remove(self, number):
        """(Requester, Responder) of a queue pair whose number is free from now on."""
        self._numbers.give(number)
        return self._sides.pop(number)

    def get(self, number):
        """The :class:`~weft.driver.soft.raw.qp.QueuePair` of a number, or None."""
        return self._sides[number][0].qp if number in self._sides else None

    def of_packet(self, packet):
        """(Requester, Responder) of a packet of a connection; None, and counted, if it is of none."""
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
        """All requesters; each time another is the first."""
        requesters = [requester for requester, _ in self._sides.values()]
        self._turn = (self._turn + 1) % max(1, len(requesters))
        return requesters[self._turn:] + requesters[:self._turn]
