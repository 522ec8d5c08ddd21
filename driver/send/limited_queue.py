"""Send queues whose end is also that of a congestion control algorithm."""

from .send_queue import SendQueue


class LimitedQueue(SendQueue):
    """Send queue that holds posted work back.

    Parameters
    ----------
    flow : FlowLimit
    options
        Those of :class:`SendQueue`. No descriptor has more payload than ``flow.chunk_bytes``.
    """

    def __init__(self, flow, *, chunk_bytes, **options):
        super().__init__(chunk_bytes=min(chunk_bytes, flow.chunk_bytes), **options)
        self.flow = flow

    @property
    def _end(self):
        return min(super()._end, self.flow.end)


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
