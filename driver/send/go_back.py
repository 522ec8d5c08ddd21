"""What is sent again to a peer that takes packets in order alone: everything from one PSN on."""


class GoBack:
    """Takes the place of a :class:`~weft.driver.send.recovery.Recovery`: no loss report, no RSN.

    Parameters
    ----------
    queue : SendQueue
    longest : int
        Packets of one descriptor at most.
    """

    expected_rsn = held = 0
    deadline = None

    def __init__(self, queue, longest):
        self._queue, self._longest = queue, longest
        self._psn = self._end = 0

    def start(self, psn):
        """Send again from ``psn`` to the newest packet that was handed over, and nothing else."""
        self._psn, self._end = psn, self._queue.sent_psn

    @property
    def has_work(self):
        """Something is to be sent again."""
        self._psn = max(self._psn, self._queue.una)
        return self._psn < self._end and self._queue.piece_at(self._psn) is not None

    def next(self):
        """Work of the oldest, and how many packets it is; there is one if :attr:`has_work`."""
        piece = self._queue.piece_at(self._psn)
        first = self._psn - piece.psn
        count = min(piece.packets - first, self._longest, self._end - self._psn)
        self._psn += count
        return piece.work(first, count), count

    def asks(self, now, again_ns):
        """There are no reports that could be missing."""
        return False

    def forget_held(self):
        """Nothing is in flight."""

    def clear(self):
        """Nothing is sent again any more."""
        self._psn = self._end
