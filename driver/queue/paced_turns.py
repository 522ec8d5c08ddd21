"""Order in which descriptors of paced QPs get the space in the card's pool."""

import collections

from weft.hdl.contract import abi

Ring = abi.Ring
RESERVED_SHARE = 4      # of the pool, this part is for retransmissions only
SIZE_LEAST = 2          # a smaller pool has no part for each kind


class PacedTurns:
    """Round robin of paced QPs, one descriptor each: the card has no more of them than its pool holds.

    New work may wait in the pool for acknowledgements, which may need retransmissions: a part of the pool is theirs.
    A QP that wants more than is free waits for a report of any QP. The card, not the order here, shares the line.

    Parameters
    ----------
    rings : dict of Ring
    size : int
        Descriptors of the pool; less than ``SIZE_LEAST``: the card paces nothing.
    passed : callable(qp)
        Called when the card got descriptors of ``qp``: it may have to wait for its peer now.

    Attributes
    ----------
    used : int
        Descriptors passed to the card, of which it has not reported the end.
    """

    def __init__(self, rings, size, passed):
        self.size, self.used, self._held = size if size >= SIZE_LEAST else 0, 0, {}
        self._passed = passed
        self._new, self._again = collections.deque(), collections.deque()     # QPs with new work; with retransmissions
        self._new_most = self.size - max(1, self.size // RESERVED_SHARE)
        self._rings = rings[Ring.SEND], rings[Ring.RETRANSMIT]

    def offer(self, qp):
        """Queue ``qp`` if it has work."""
        if qp.sender.has_retransmission and qp not in self._again:
            self._again.append(qp)
        if qp.sender.has_work and qp not in self._new:
            self._new.append(qp)

    def remove(self, qp):
        """Remove ``qp`` from the order."""
        for turn in (self._again, self._new):
            if qp in turn:
                turn.remove(qp)

    def clear(self):
        self._again.clear()
        self._new.clear()
        self._held.clear()
        self.used = 0

    def ended(self, qp, descriptors):
        """Note that the card reported the end of descriptors of ``qp``."""
        descriptors = min(descriptors, self._held.get(qp, 0))
        if descriptors:
            self._held[qp] -= descriptors
            self.used -= descriptors

    def discarded(self, qp):
        """Note that the card has no descriptors of ``qp`` any more."""
        self.used -= self._held.pop(qp, 0)

    def holds(self, qp):
        """Return true if the card may have descriptors of ``qp``."""
        return self._held.get(qp, 0) > 0

    def fill(self):
        """Pass descriptors to the card, retransmissions first, as far as pool and rings have space.

        Returns
        -------
        bool
            True if a QP waits for space in a ring.
        """
        send, retransmit = self._rings
        while self._again and self.used < self.size and retransmit.space:
            qp = self._again.popleft()
            qp.contain(self._repeat, qp, retransmit)
        retransmit.ring_doorbell()
        while self._new and self.used < self._new_most and send.space:
            qp = self._new.popleft()
            qp.contain(self._send, qp, send)
        send.ring_doorbell()
        return bool(self._again and not retransmit.space or self._new and not send.space)

    def _repeat(self, qp, ring):
        if work := qp.sender.next_retransmission():
            self._push(qp, ring, [work])
        if qp.sender.has_retransmission:
            self._again.append(qp)

    def _send(self, qp, ring):
        if works := qp.sender.next_work():
            self._push(qp, ring, works)
        if qp.sender.has_work:
            self._new.append(qp)

    def _push(self, qp, ring, works):
        self._held[qp] = self._held.get(qp, 0) + len(works)
        self.used += len(works)
        try:
            ring.push_all(qp.descriptors(works), [(qp, 0)] * len(works))
        except Exception:
            self.ended(qp, len(works))      # the card does not get them
            qp.sender.on_taken(len(works))
            raise
        self._passed(qp)

    @property
    def busy(self):
        """True if a QP waits for space."""
        return bool(self._again or self._new)
