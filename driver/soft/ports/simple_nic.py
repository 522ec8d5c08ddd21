"""Port for the card's Simple NIC: raw frames through its rings."""

from weft.driver.queue.ring import ENTRIES_MAX

from .inbox import Inbox


def for_host_qpns(_frame, entry):
    """Return true for packets to a QPN of software on the host: see :class:`~weft.driver.queue.host_qpns.HostQpns`."""
    return bool(entry.host)


class SimpleNicPort(Inbox):
    """Port for the raw frames of an open card.

    Parameters
    ----------
    context : Context
        Its :meth:`progress` delivers frames.
    wanted : callable(frame, entry)
        Returns true for raw frames, with their NIC_RX entries, that are for this port; others remain for the other
        handlers. :func:`for_host_qpns` is an example.
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
    def space(self):
        """Least number of frames that the NIC_TX ring takes now, 0 if frames are queued in software."""
        nic = self.context.engine.nic
        return 0 if nic.queue else nic.tx.space // ENTRIES_MAX

    def send(self, frame):
        """Hand a frame to the card."""
        self.context.send_raw(frame)

    def close(self):
        """Stop taking frames."""
        self.context.raw_frame_handlers.remove(self._arrive)
