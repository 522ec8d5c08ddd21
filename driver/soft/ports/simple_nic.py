"""The card's Simple NIC as a port: raw frames through its rings."""

from .inbox import Inbox


def for_host_qpns(_frame, entry):
    """Packets for a QPN of software on the host: see :class:`~weft.driver.queue.host_qpns.HostQpns`."""
    return bool(entry.host)


class SimpleNicPort(Inbox):
    """An open card's raw frames.

    Parameters
    ----------
    context : Context
        Its :meth:`progress` is what brings frames.
    wanted : callable(frame, entry)
        Whether a raw frame of the card, with its NIC_RX entry, is one for this port; others stay with the other
        handlers. :func:`for_host_qpns` is one.
    depth : int
        See :class:`Inbox`.
    """

    def __init__(self, context, wanted, *, depth=1024):
        super().__init__(depth)
        self.context, self.wanted = context, wanted
        context.raw_frame_handlers.append(self._arrive)

    def _arrive(self, frame, entry):
        if self.wanted(frame, entry):
            self.arrive(bytes(frame))

    @property
    def room(self):
        """Frames the NIC_TX ring takes now: none is queued beside it."""
        nic = self.context.engine.nic
        return 0 if nic.busy else nic.tx.room

    def send(self, frame):
        """Hand a frame to the card."""
        self.context.send_raw(frame)

    def close(self):
        """Take no frames any more."""
        self.context.raw_frame_handlers.remove(self._arrive)
