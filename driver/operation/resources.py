"""Resources that the operations of a QP share."""


class Resources:
    """Memory, message queues and access rights of one incarnation of a QP.

    Parameters
    ----------
    index : int
        Of the QP.
    pd : int
        Protection domain.
    lender : MailboxMemory
        Memory of the card.
    rights : callable
        Returns an object with the current ``qp_access_flags``, ``max_rd_atomic``, ``max_dest_rd_atomic`` and
        ``rq_psn``.
    inline_bytes : int
        Largest payload of a descriptor with inline data.
    failed : callable(exception)
        Called if the handling of a response of the card raises an exception.

    Attributes
    ----------
    memory : Memory
    windows : WindowTable
    receiver : Receiver or None
        From RTR on.
    sender : Sender or None
        From RTS on.
    """

    def __init__(self, index, pd, lender, rights, inline_bytes, failed):
        self.index, self.pd, self.rights, self.inline_bytes, self.failed = index, pd, rights, inline_bytes, failed
        self.memory, self.windows = lender.memory, lender.windows
        self.receiver = self.sender = None

    def make_window(self, mr, va, length, ready):
        """Create a window for the peer of this QP: see :meth:`~weft.driver.operation.window.WindowTable.make`."""
        return self.windows.make(mr, va, length, self.index, ready, self.failed)

    def known(self, data, stage):
        """Return ``sges`` and ``inline`` of a message with data that the driver has.

        The data is inline in the descriptor if it fits, or else in memory, where ``stage`` copies it.
        """
        if len(data) <= self.inline_bytes:
            return [(0, len(data), 0)], data
        return [stage(data)], None
