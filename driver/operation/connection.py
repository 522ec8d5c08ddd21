"""Both sides of the operations of a QP, between what moves its messages and what completes its work requests."""

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
    """The operations of one life of a QP.

    Parameters
    ----------
    resources : Resources
    queues : Queues
    lender : Lender
        Memory of the card.
    wake : callable()
        Called when something may go on in the next round.
    fail : callable(status)
        Called when everything ends: the oldest operation with ``status``.
    start_answering : callable(psn)
        Called in RTR when the peer asks for something that takes a sender, which is to begin with this PSN.

    Attributes
    ----------
    requester : Requester
    responder : Responder
    mailbox : Mailbox
    """

    def __init__(self, resources, queues, lender, *, wake, fail, start_answering):
        self._resources, self._queues, self._fail, self._start_answering = resources, queues, fail, start_answering
        self.mailbox = Mailbox(lender, resources.index, self._post_mailbox, wake)
        self.requester = Requester(resources, queues, self.mailbox, wake=wake, fail=fail)
        self.responder = Responder(resources, queues, self.mailbox, wake=wake)

    def _post_mailbox(self, end):
        """Send what a mailbox tells. Who asks says with which PSN the answers have to begin: a peer that only answers,
        in RTR, was told by nobody."""
        if end.kind is Kind.MAILBOX_ASK:
            end.imm = self._resources.rights().rq_psn
        self._resources.sender.post([Request(0, [], 0, 0, end=end)])

    def on_message(self, psn, end):
        """The next message of the peer."""
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
        """Start and complete what can be."""
        if self.responder.entries or self.responder.failed:
            self.responder.pump()
        if self._resources.sender is not None:
            if self.mailbox.owes_answer:
                self.mailbox.pump()
            if self.requester.waiting or self.requester.open or self.requester.failed is not None:
                self.requester.pump()

    def fail_in_turn(self, psn, status):
        """What the message with this PSN was sent for will not succeed: an operation fails when those before it are
        complete; without an answer to the peer, everything ends."""
        if self.requester.fail_in_turn(psn, status):
            return
        request, receiver = self._resources.sender.queue.request_at(psn), self._resources.receiver
        if isinstance(request, Answer):
            receiver.refuse(request.asked, OPERATIONAL)
            receiver.repeat_last()
        self._fail(status)

    # ---------------------------------------------------------------------------------------- the end

    def fail_all(self, status):
        """All work requests end, as soon as no window is left: the oldest operation with ``status``."""
        self.requester.fail(status)
        self.responder.fail()

    def abandon(self):
        """Nothing is completed any more."""
        self.requester.abandon()
        self.responder.abandon()

    def close(self):
        """The card is to forget all memory that was lent; :attr:`closed` follows."""
        self._queues.leave()
        self.mailbox.close()

    @property
    def closed(self):
        """Nothing is lent."""
        return self.mailbox.closed and not self.requester.lends and not self.responder.lends

    def forget(self):
        """The card was reset: nothing is lent any more."""
        self.mailbox.forget()
        self.requester.forget()
        self.responder.forget()
