"""From the peer's loss reports to what is sent again."""

from ..knitting.holes import node_runs
from ..protocol.wrap import near
from .loss_reports import LossReports
from .retransmission import RetransmissionQueue


class Recovery:
    """Loss reports of one QP, and the retransmissions they ask for, in the order of their RSNs.

    Parameters
    ----------
    longest : int
        Packets of one descriptor at most.
    again_ns : int
        How long to wait before a missing report is asked for again.
    counts : Counter
        Statistics by name.
    """

    def __init__(self, *, longest, again_ns, counts):
        self.counts = counts
        self._reports = LossReports(again_ns)
        self._queue = RetransmissionQueue(longest)

    @property
    def expected_rsn(self):
        """RSN of the first hole of the next loss report."""
        return self._reports.expected

    @property
    def has_work(self):
        """Something is to be sent again."""
        return bool(self._queue)

    def next(self):
        """WORK fields of the oldest retransmission and how many packets they are; there is one if :attr:`has_work`."""
        piece, first, count, rsn = self._queue.next()
        return piece.work(first, count, rsn), count

    def take(self, node, una, piece_at):
        """An unpacked NODE of the peer: how many reports took effect with it, or None if it makes no sense.

        ``una`` is the oldest unacknowledged PSN, ``piece_at(psn)`` the piece that holds a PSN or None.
        """
        rsn = near(node.rsn, self.expected_rsn, 32)
        if rsn < self.expected_rsn:
            self.counts["repeated_reports"] += 1
            return 0
        try:
            runs = node_runs(node, una)
        except ValueError:
            self.counts["bad_reports"] += 1
            return None
        self._reports.add(rsn, runs, node.count)
        taken = 0
        for first, ready in self._reports.take():
            self.counts["unknown_holes"] += self._queue.add(ready, first, piece_at)
            self.counts["reports"] += 1
            taken += 1
        return taken

    def asks(self, now):
        """Whether a missing report is to be asked for now."""
        return self._reports.ask(now)

    @property
    def deadline(self):
        """When :meth:`asks` wants to be called, or None."""
        return self._reports.deadline

    def clear(self):
        """Nothing is sent again any more."""
        self._reports.clear()
        self._queue.clear()
