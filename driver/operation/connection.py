"""Operations of a QP: dispatches messages to requester, responder and mailbox."""

from weft.hdl.contract import wire

from ..protocol.message_end import REQUESTS, Kind
from ..protocol.segment import Request
from ..terms.enums import WCStatus
from .mailbox import Mailbox
from .requester import Requester
from .responder import INVALID, OPERATIONAL, Answer, Responder

_MAILBOX = frozenset({Kind.MAILBOX, Kind.MAILBOX_ASK})
_ANSWERS = frozenset({Kind.GRANT, Kind.READ_DATA, Kind.ATOMIC_RESULT})


class Connection:
    """Operations of one incarnation of a QP.

    Parameters
    ----------
    resources : Resources
    queues : Queues
    lender : MailboxMemory
        Memory of the card.
    wake : callable()
        Called when an operation may continue in the next round.
    fail : callable(status)
        Called when all operations must end: the oldest one with ``status``.
    start_answering : callable(psn)
        Called in RTR for a request of the peer whose response needs a sender, which must begin with this PSN.

    Attributes
    ----------
    requester : Requester
    responder : Responder
    mailbox : Mailbox
    """

    def __init__(self, resources, queues, lender, *, wake, fail, start_answering):
        self._resources, self._queues, self._fail, self._start_answering = resources, queues, fail, start_answering
        self.mailbox = Mailbox(lender, resources.index, self._post_mailbox, wake, failed=resources.failed)
        self.requester = Requester(resources, queues, self.mailbox, wake=wake, fail=fail)
        self.responder = Responder(resources, queues, self.mailbox, wake=wake)

    def _post_mailbox(self, end):
        """Send a message of the mailbox.

        MAILBOX_ASK contains the first PSN of responses, which a peer that only responds (in RTR) does not know
        otherwise.
        """
        if end.kind is Kind.MAILBOX_ASK:
            end.imm = self._resources.rights().rq_psn
        self._resources.sender.post([Request(0, [], 0, 0, end=end)])

    def on_message(self, psn, end):
        """Handle the next message of the peer."""
        if end.kind in REQUESTS:
            self.responder.on_request(psn, end)
            return
        try:
            if end.kind is Kind.MAILBOX_ASK and self._resources.sender is None:
                self._start_answering(end.imm % (1 << wire.PSN_BITS))
            if end.kind in _MAILBOX:
                right = self.mailbox.on_message(end)
            elif end.kind is Kind.SEND_DATA:
                right = self.responder.on_data(end)
            elif end.kind in _ANSWERS:
                right = self.requester.on_answer(end)
                if not right and self.requester.failed is None:
                    self._fail(WCStatus.BAD_RESP_ERR)
                    return
            else:
                right = False
        except MemoryError:
            self._resources.receiver.refuse(psn, OPERATIONAL)
            return
        if not right:
            self._resources.receiver.refuse(psn, INVALID)

    def pump(self):
        """Start and complete the operations that are ready, on both sides."""
        if self.responder.entries or self.responder.failed:
            self.responder.pump()
        if self._resources.sender is not None:
            if self.mailbox.owes_answer:
                self.mailbox.pump()
            if self.requester.waiting or self.requester.open or self.requester.failed is not None:
                self.requester.pump()

    def fail_in_turn(self, psn, status):
        """Handle the failure of the message with this PSN.

        If it belongs to an operation, that operation fails when all before it are complete. If it is a response to the
        peer, all operations end.
        """
        if self.requester.fail_in_turn(psn, status):
            return
        request, receiver = self._resources.sender.queue.request_at(psn), self._resources.receiver
        if isinstance(request, Answer):
            receiver.refuse(request.asked, OPERATIONAL)
            receiver.repeat_last()
        self._fail(status)

    # ---------------------------------------------------------------------------------------- the end

    def fail_all(self, status):
        """End all work requests once no window is left: the oldest operation with ``status``."""
        self.requester.fail(status)
        self.responder.fail()

    def abandon(self):
        """Drop all operations without completions."""
        self.requester.abandon()
        self.responder.abandon()

    def close(self):
        """Deregister all memory that the peer can access for operations. Sets :attr:`closed` later."""
        self._queues.leave()
        self.mailbox.close()

    @property
    def closed(self):
        """True if the peer can access no memory of operations any more."""
        return self.mailbox.closed and not self.requester.lends and not self.responder.lends

    def forget(self):
        """Drop all windows and the mailbox: the card was reset."""
        self.mailbox.forget()
        self.requester.forget()
        self.responder.forget()
