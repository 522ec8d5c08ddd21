"""From the peer's loss reports to what is sent again."""

from weft.hdl.contract import abi

from ..knitting.holes import node_runs
from ..protocol.wrap import near
from .loss_reports import LossReports
from .retransmission import RetransmissionQueue


class Recovery:
    """Loss reports of one QP, and the retransmissions they ask for, in the order of their RSNs.

    A report is believed as far as it can be true: its holes were sent and are not acknowledged, and all that is asked
    for and was not sent again yet is not more than that, spans (see :class:`~weft.driver.receive.waiting.WaitingHoles`)
    counted. What is not believed takes no RSN, so that the true report still counts.

    Parameters
    ----------
    longest : int
        Packets of one descriptor at most.
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
        """A report came that others have to come before."""
        return self._reports.held_holes > 0

    @property
    def has_work(self):
        """Something is to be sent again."""
        return self._queue.packets > 0

    def next(self):
        """Work of the oldest retransmission and how many packets it is; there is one if :attr:`has_work`."""
        piece, first, count, rsn = self._queue.next()
        return piece.work(first, count, rsn), count

    def take(self, node, queue):
        """An unpacked NODE of the peer: runs of PSNs of the reports that took effect with it, or None if it makes no
        sense. ``queue`` is the :class:`~weft.driver.send.send_queue.SendQueue`.
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
        """Runs of a node that can be true, or None; counts why not."""
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
        """Whether a missing report is to be asked for now, and if so again in ``again_ns``."""
        return self._reports.ask(now, again_ns)

    @property
    def deadline(self):
        """When :meth:`asks` wants to be called, or None."""
        return self._reports.deadline

    def forget_held(self):
        """Nothing is in flight: no report is missing."""
        self._reports.forget_held()

    def clear(self):
        """Nothing is sent again any more."""
        self._reports.forget_held()
        self._queue.clear()
