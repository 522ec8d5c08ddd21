"""Congestion control of a QP whose packets the card paces: rate, limit, and descriptors in the card's pool."""

import collections
from typing import NamedTuple

from weft.hdl.contract import abi

from ..congestion.algorithm import NS_BITS
from .flow_limit import CHUNKS, PACKET_OVERHEAD, FlowLimit
from .send_queue import SendQueue

LEAST = 4               # descriptors of a kind that a QP may have in the card
MOST = 32               # the same while they are short
AHEAD_NS = 8_000        # short ones: those that the rate sends in less time
CHUNK_NS = 16_000       # longest time that the rate needs for a descriptor
BEYOND = 2              # descriptors that may wait for the limit
_WORD, _TIME = (1 << 32) - 1, (1 << abi.REPORT_EVENT.by_name["time_ns"].width) - 1


class _Descriptor(NamedTuple):
    """Descriptor in the card: PSN after it, bytes of payload; it ends a message."""

    end: int
    length: int
    last: bool


class PacedFlow(FlowLimit):
    """:class:`FlowLimit` for a card with a pacer, which delays packets by the rate and holds them back at the limit.

    The card may have descriptors beyond the end of the window, so that it continues as soon as the limit moves. The
    limit is always at the end of a descriptor or beyond all of them: the card reports complete descriptors only. A
    descriptor has at most an eighth of the window. A window that became shorter than the first one allows it
    nevertheless, when nothing else is in flight.

    A round trip lasts from the time at which the last packet of a descriptor was complete to the arrival of its
    acknowledgement, both by the card's clock. Packets are in flight as soon as the card may send them.

    Parameters are those of :class:`FlowLimit`.

    Attributes
    ----------
    left : int
        Every older PSN has left the card.
    """

    paced = True

    def __init__(self, name, **options):
        self._new, self._again = collections.deque(), collections.deque()     # in the card, oldest first
        super().__init__(name, **options)

    # --------------------------------------------------------------------------------- for the doorbells

    @property
    def gap(self):
        """Time of a byte on the line, as RATE_DOORBELL has it."""
        return min(round(NS_BITS * (1 << abi.PACE_SCALE) / self.algorithm.rate), abi.PACE_GAP_MAX)

    @property
    def limit(self):
        """PSN from which on the card may send nothing new."""
        new, end = self._new, self.end
        if not new or new[-1].end <= end:
            return end
        if end < new[0].end:
            return new[0].end if self.heard >= self.left and not self._missing else self.left
        return max(one.end for one in new if one.end <= end)

    # ------------------------------------------------------------------------------- descriptors

    @property
    def step(self):
        """Packets of the next descriptor of new work."""
        most = min(self.algorithm.rate * CHUNK_NS / NS_BITS, self._window * self.packet / CHUNKS)
        return max(1, int(most) // self.packet)

    @property
    def takes_new(self):
        """True if the card may get another descriptor of new work."""
        return self._takes(self._new) and sum(one.end > self.end for one in self._new) < BEYOND

    @property
    def takes_again(self):
        """True if the card may get another retransmission."""
        return self._takes(self._again)

    def _takes(self, these):
        if len(these) < LEAST:
            return True
        ahead = self.algorithm.rate * AHEAD_NS / NS_BITS
        return len(these) < MOST and sum(one.length + PACKET_OVERHEAD for one in these) < ahead

    @property
    def works(self):
        """True if the card has packets that it may send."""
        return bool(self._again or self._new and self._new[0].end <= self.limit)

    def pushed(self, works, sent_psn):
        last = len(works) - 1
        self._new.extend(_Descriptor(works[n + 1].psn if n < last else sent_psn, work.length, work.last)
                         for n, work in enumerate(works))

    def pushed_again(self, work, packets):
        """Note a retransmission for the card."""
        self._again.append(_Descriptor(work.psn + packets, work.length, False))

    def retired(self, descriptors, now):
        """Do nothing: :meth:`reported` has more."""

    def reported(self, psn, again, time_ns, now):
        """Note a report PACED with 32-bit ``psn``; return the number of descriptors that it ends.

        The algorithm learns the time: at the lowest rate a packet lasts many periods of its timers, and the peer
        acknowledges nothing within a message that has losses.
        """
        these = self._again if again else self._new
        count = next((n for n, one in enumerate(these, 1) if one.end & _WORD == psn), 0)
        for _ in range(count):
            ended = these.popleft()
            if not again:
                self.left = ended.end
                if ended.last:
                    self._asked = self.left
        if count and not again and self.left > self.heard:
            self._timed.append((self.left, time_ns))
        if count:
            self.algorithm.on_time(now)
            self._apply()
        return count

    def begun_psn(self, sent_psn):
        """Return a PSN from which on nothing has left the card."""
        return self._new[0].end if self._new else sent_psn

    def discarded(self):
        """Note that the card discarded what it had."""
        self._new.clear()
        self._again.clear()

    # ---------------------------------------------------------------------------------- the window

    def _stalled(self, sent_psn):
        return not self._again and self.left >= self.limit

    def _since(self, left_ns, now, came_ns):
        return None if came_ns is None else came_ns - left_ns & _TIME

    def _in_flight(self, sent_psn):
        return super()._in_flight(min(sent_psn, max(self.limit, self.heard)))


class PacedQueue(SendQueue):
    """Send queue of a QP whose packets the card paces and holds back.

    Parameters
    ----------
    flow : PacedFlow
        It determines size and number of the descriptors.
    options
        Those of :class:`SendQueue`.
    """

    def __init__(self, flow, **options):
        super().__init__(**options)
        self.flow = flow

    @property
    def has_work(self):
        return super().has_work and self.flow.takes_new

    @property
    def may_leave(self):
        return self.has_work and self.sent_psn < self.flow.end

    @property
    def left_psn(self):
        return self.flow.left

    @property
    def begun_psn(self):
        return self.flow.begun_psn(self.sent_psn)

    @property
    def _end(self):
        """PSN after the next descriptor at most: the end of the window cuts it, unless one of the parts is short."""
        step = self.flow.step
        end, before = self.sent_psn + step, self.flow.end - self.sent_psn
        return min(super()._end, self.sent_psn + before if step / 2 <= before < step else end)
