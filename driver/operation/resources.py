"""What the operations of a QP use."""


class Resources:
    """Memory, messages and rights of one life of a QP.

    Parameters
    ----------
    index : int
        Of the QP.
    pd : int
        The protection domain.
    lender : Lender
        Memory of the card.
    rights : callable
        Returns what has ``qp_access_flags``, ``max_rd_atomic``, ``max_dest_rd_atomic`` and ``rq_psn``, as they are now.
    inline_bytes : int
        Payload that a descriptor may bring along.

    Attributes
    ----------
    memory : Memory
    windows : WindowTable
    receiver : Receiver or None
        From RTR on.
    sender : Sender or None
        From RTS on.
    """

    def __init__(self, index, pd, lender, rights, inline_bytes):
        self.index, self.pd, self.rights, self.inline_bytes = index, pd, rights, inline_bytes
        self.memory, self.windows = lender.memory, lender.windows
        self.receiver = self.sender = None

    def known(self, data, stage):
        """``sges`` and ``inline`` of a message of bytes that the driver has: in its descriptor, or else in memory where
        ``stage`` puts them."""
        if len(data) <= self.inline_bytes:
            return [(0, len(data), 0)], data
        return [stage(data)], None
