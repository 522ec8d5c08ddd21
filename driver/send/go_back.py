"""Go-back-N retransmission, for a peer that accepts packets in order only."""


class GoBack:
    """Go-back-N replacement of :class:`~weft.driver.send.recovery.Recovery`, without loss reports and RSNs.

    Parameters
    ----------
    queue : SendQueue
    longest : int
        Largest number of packets of one descriptor.
    """

    expected_rsn = held = 0
    deadline = None

    def __init__(self, queue, longest):
        self._queue, self._longest = queue, longest
        self._psn = self._end = 0

    def start(self, psn):
        """Start to retransmit from ``psn`` up to the newest packet that may have left the card.

        An earlier retransmission ends.
        """
        self._psn, self._end = psn, self._queue.begun_psn

    @property
    def has_work(self):
        """True if packets wait for retransmission."""
        self._psn = max(self._psn, self._queue.una)
        return self._psn < self._end and self._queue.piece_at(self._psn) is not None

    def next(self):
        """Return the work of the oldest retransmission and its number of packets. Requires :attr:`has_work`."""
        piece = self._queue.piece_at(self._psn)
        first = self._psn - piece.psn
        count = min(piece.packets - first, self._longest, self._end - self._psn)
        self._psn += count
        return piece.work(first, count), count

    def asks(self, now, again_ns):
        """Return false: without loss reports, none can be missing."""
        return False

    def forget_held(self):
        """Do nothing: there are no held reports."""

    def clear(self):
        """Cancel the retransmission."""
        self._psn = self._end
