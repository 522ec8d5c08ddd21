"""Completion queues and receive queue of a QP."""

from ..protocol.message_end import Kind
from ..terms.enums import EventType, WCFlags, WCOpcode, WCStatus
from ..terms.wc import WC
from .operation import COMPLETION_OPCODE

_SUCCESS = WCStatus.SUCCESS


class Queues:
    """Completion queues and receive queue of one incarnation of a QP.

    Parameters
    ----------
    qp_num : int
    scq, rcq
        Completion queues, with ``push(wc, solicited)`` and ``push_all(wcs)``.
    receives : Receives
        Of this QP, unless they are ``shared`` with others.

    Attributes
    ----------
    wake : callable()
        Called when a missing receive request was posted.
    notify : callable(EventType)
        Called when a QP with shared receive requests consumes no more of them.
    """

    def __init__(self, qp_num, scq, rcq, receives, *, shared):
        self.qp_num, self.scq, self.rcq, self.receives = qp_num, scq, rcq, receives
        self.wake = self.notify = None
        self._shared, self._left = shared, False

    def complete_sends(self, ops, status):
        """Complete send work requests, in order."""
        number, failed = self.qp_num, status is not _SUCCESS
        self.scq.push_all([WC(op.wr_id, status, COMPLETION_OPCODE[op.opcode], 0, op.length, number)
                           for op in ops if failed or op.signaled])

    def complete_receive(self, receive, status, end=None):
        """Complete a receive work request; after success, by the message with this end."""
        if end is None:
            self.rcq.push(WC(receive.wr_id, status, WCOpcode.RECV, qp_num=self.qp_num))
            return
        opcode = WCOpcode.RECV_RDMA_WITH_IMM if end.kind is Kind.WRITE_IMM else WCOpcode.RECV
        self.rcq.push(WC(receive.wr_id, status, opcode, qp_num=self.qp_num, byte_len=end.length, imm_data=end.imm,
                         wc_flags=WCFlags.WITH_IMM if end.has_imm else WCFlags(0)), bool(end.solicited))

    def take_receive(self):
        """Return the next receive request. If there is none, return None, and call ``wake`` after the next post."""
        return self.receives.take(self.wake)

    def flush_receives(self):
        """Flush the receive requests that no message consumed. Shared ones remain."""
        if not self._shared:
            for receive in self.receives.clear():
                self.complete_receive(receive, WCStatus.WR_FLUSH_ERR)
            return
        self.leave()
        if not self._left:
            self._left = True
            self.notify(EventType.QP_LAST_WQE_REACHED)

    def leave(self):
        """Cancel the wait for a receive request."""
        self.receives.leave(self.wake)

    def forget_receives(self):
        """Drop the receive requests without completions. Shared ones remain."""
        self.leave()
        if not self._shared:
            self.receives.clear()
