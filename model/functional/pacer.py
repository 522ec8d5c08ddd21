"""Rule of pacing: order of the paced descriptors of a QP, times of their packets, and limit of the new ones."""

import heapq
from collections import deque
from dataclasses import dataclass

from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import PACE_BURST_NS as BURST_NS

OVERHEAD_BYTES = wire.DATA_HEADER_BYTES + wire.ICRC_BYTES + wire.LINE_OVERHEAD_BYTES      # counted for each packet
_SCALE, _WORD = 1 << abi.PACE_SCALE, 1 << 32


@dataclass(eq=False)
class PacedDescriptor:
    """Descriptor in the pool.

    Attributes
    ----------
    work : SimpleNamespace
        Unpacked WORK.
    again : bool
        It came from the RETRANSMIT ring.
    total : int
        Packets.
    packets : iterator
        Of the packets that did not leave.
    number : int
        Packets that left.
    """

    work: object
    again: bool
    total: int
    packets: object
    number: int = 0

    @property
    def qpn(self):
        """Index of its QP."""
        return self.work.sqpn

    @property
    def psn(self):
        """PSN of the next packet; after the last one, the PSN after it."""
        return (self.work.psn + self.number) % _WORD


class _PacedQp:
    """Pacing of a QP."""

    __slots__ = ("again", "gap", "limit", "limited", "new", "newest", "next", "queued")

    def __init__(self):
        self.again, self.new = deque(), deque()     # descriptors, oldest first
        self.gap, self.limited, self.limit = 0, False, 0
        self.next, self.newest = 0.0, 0     # time of the next packet; bytes of the newest one
        self.queued = None                  # number of its entry in the schedule

    def head(self):
        """Return the descriptor with the next packet, or None: there is none, or it waits for the limit."""
        if self.again:
            return self.again[0]
        if not self.new:
            return None
        if self.limited and (self.new[0].psn - self.limit) % _WORD < _WORD // 2:
            return None
        return self.new[0]


class Pacer:
    """Pool of descriptors, and schedule of the QPs that have some.

    A packet of *b* bytes on the line moves the next packet of its QP to ``max(next, now - BURST_NS) + b * gap``. QPs
    whose packets are due send one packet each, in the order in which these became due.

    Parameters
    ----------
    size : int
        Descriptors of the pool.

    Attributes
    ----------
    used : int
        Descriptors in the pool.
    """

    def __init__(self, size):
        self.size, self.used = size, 0
        self._qps, self._schedule, self._number = {}, [], 0

    def create(self, qpn):
        """Forget the rate, the limit and the descriptors of an earlier QP with this index."""
        self.flush(qpn)
        self._qps.pop(qpn, None)

    def _qp(self, qpn):
        qp = self._qps.get(qpn)
        if qp is None:
            qp = self._qps[qpn] = _PacedQp()
        return qp

    def set_rate(self, word, now):
        """Process an unpacked RATE_DOORBELL. A packet that waits longer than the new rate demands leaves earlier."""
        qp = self._qp(word.qpn)
        qp.gap, qp.limited = min(word.gap, abi.PACE_GAP_MAX) / _SCALE, bool(word.limited)
        qp.next = min(qp.next, now + qp.newest * qp.gap)
        self._queue(qp, now)

    def set_limit(self, word, now):
        """Process an unpacked LIMIT_DOORBELL."""
        qp = self._qp(word.qpn)
        qp.limit = word.psn
        self._queue(qp, now)

    def add(self, descriptor, ready):
        """Take a descriptor, whose packets may leave from the time ``ready`` on; return false if the pool is full."""
        if self.used == self.size:
            return False
        qp = self._qp(descriptor.qpn)
        self.used += 1
        (qp.again if descriptor.again else qp.new).append(descriptor)
        if qp.queued is None:
            self._queue(qp, ready)
        return True

    def _queue(self, qp, now):
        """Schedule the next packet of a QP."""
        qp.queued = None
        if qp.head() is not None:
            self._number += 1
            qp.queued = self._number
            heapq.heappush(self._schedule, (self.due_at(qp.next, now), self._number, qp))

    def due_at(self, time_ns, now):
        """Return when a packet is due whose time is ``time_ns``."""
        return max(time_ns, now)

    @property
    def due(self):
        """Time of the next packet of any QP, or None."""
        schedule = self._schedule
        while schedule and schedule[0][2].queued != schedule[0][1]:
            heapq.heappop(schedule)
        return schedule[0][0] if schedule else None

    def take(self):
        """Return the descriptor whose packet is due. :meth:`sent` or :meth:`flush` must follow."""
        qp = heapq.heappop(self._schedule)[2]
        qp.queued = None
        return qp.head()

    def sent(self, descriptor, payload_bytes, now):
        """Note that the next packet of a descriptor left; return true if it was the last one."""
        qp = self._qps[descriptor.qpn]
        qp.newest = payload_bytes + OVERHEAD_BYTES
        qp.next = max(qp.next, now - BURST_NS) + qp.newest * qp.gap
        descriptor.number += 1
        done = descriptor.number == descriptor.total
        if done:
            (qp.again if descriptor.again else qp.new).popleft()
            self.used -= 1
        self._queue(qp, now)
        return done

    def flush(self, qpn):
        """Discard the descriptors of a QP."""
        if (qp := self._qps.get(qpn)) is not None:
            self.used -= len(qp.again) + len(qp.new)
            qp.again.clear()
            qp.new.clear()
            qp.queued = None
