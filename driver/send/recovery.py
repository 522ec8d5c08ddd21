"""Loss recovery of the sender: turns loss reports into retransmissions."""

from weft.hdl.contract import abi

from ..knitting.holes import node_runs
from ..protocol.wrap import near
from .loss_reports import LossReports
from .retransmission import RetransmissionQueue


class Recovery:
    """Loss reports of one QP, and the retransmissions that they request, in RSN order.

    A report is accepted only if it is plausible: its holes were sent and are not acknowledged, and the holes that await
    retransmission do not exceed the outstanding PSNs, with an allowance for spans (see
    :class:`~weft.driver.receive.hole_list.WaitingHoles`). A rejected report consumes no RSN, so that the genuine report
    still takes effect.

    Parameters
    ----------
    longest : int
        Largest number of packets of one descriptor.
    counts : Counter
        Statistics by name.
    """

    def __init__(self, *, longest, counts):
        self.counts = counts
        self._reports = LossReports()
        self._queue = RetransmissionQueue(longest)

    @property
    def expected_rsn(self):
        """RSN of the first hole of the next loss report."""
        return self._reports.expected

    @property
    def held(self):
        """True if a report arrived before an earlier one."""
        return self._reports.held_holes > 0

    @property
    def has_work(self):
        """True if packets wait for retransmission."""
        return self._queue.packets > 0

    def next(self):
        """Return the work of the oldest retransmission and its number of packets. Requires :attr:`has_work`."""
        piece, first, count, rsn = self._queue.next()
        return piece.work(first, count, rsn), count

    def take(self, node, queue):
        """Accept an unpacked NODE of the peer.

        Parameters
        ----------
        node : unpacked NODE
        queue : SendQueue

        Returns
        -------
        list or None
            Runs of PSNs of the reports that took effect with it; None if the node is not plausible.
        """
        rsn = near(node.rsn, self.expected_rsn, 32)
        if rsn < self.expected_rsn:
            self.counts["repeated_reports"] += 1
            return []
        runs = self._believed(node, rsn, queue)
        if runs is None:
            return None
        if not self._reports.add(rsn, runs, node.count):
            self.counts["reports_not_held"] += 1
        taken = []
        for first, ready in self._reports.take():
            self.counts["unknown_holes"] += self._queue.add(ready, first, queue.piece_at)
            self.counts["reports"] += 1
            taken += ready
        return taken

    def _believed(self, node, rsn, queue):
        """Return the runs of a plausible node. Otherwise count the reason and return None."""
        try:
            runs = node_runs(node, queue.una)
        except ValueError:
            runs = []
        if not runs or not queue.una <= runs[0][0] or sum(runs[-1]) > queue.sent_psn:
            self.counts["bad_reports"] += 1
            return None
        possible = 2 * (queue.sent_psn - queue.una) + abi.NODE_HOLES_MAX
        if rsn + node.count - self.expected_rsn > possible:
            self.counts["far_reports"] += 1
            return None
        if self._queue.packets + self._reports.held_holes + node.count > possible:
            self.counts["reports_over_budget"] += 1
            return None
        return runs

    def asks(self, now, again_ns):
        """Return true if a missing report must be requested now. ``again_ns`` is the time until the next request."""
        return self._reports.ask(now, again_ns)

    @property
    def deadline(self):
        """Time at which :meth:`asks` must be called, or None."""
        return self._reports.deadline

    def forget_held(self):
        """Discard the early reports: nothing is in flight, so no report is missing."""
        self._reports.forget_held()

    def clear(self):
        """Cancel all retransmissions."""
        self._reports.forget_held()
        self._queue.clear()
