"""Send queue whose end is also that of a congestion control algorithm."""

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
