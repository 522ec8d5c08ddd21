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
    engine : QpEngine
        It has ``sender``, ``receiver``, ``index``, completes work requests, and has ``start_answering(psn)``.
    lender : Lender
        Memory of the card.
    rights : callable
        What has ``qp_access_flags``, ``max_rd_atomic`` and ``max_dest_rd_atomic``, as they are now.
    pd : int
        The protection domain.
    receives : Receives
        Where receive requests come from.

    Attributes
    ----------
    requester : Requester
    responder : Responder
    mailbox : Mailbox
    inline_bytes : int
        Payload that a descriptor may bring along.
    wake : callable
        Something may go on in the next round.
    fail : callable(status)
        Everything ends: the oldest operation with ``status``.
    complete_sends : callable(operations, status)
        Operations are done with, in order.
    """

    def __init__(self, engine, lender, rights, pd, receives):
        self.engine, self.rights, self.pd, self.receives = engine, rights, pd, receives
        self.index, self.inline_bytes = engine.index, engine.card.inline_bytes
        self.memory, self.windows = lender.memory, lender.windows
        self.complete_sends, self.wake, self.fail = engine.complete_sends, engine.wake, engine.fail
        self.mailbox = Mailbox(lender, engine.index, self._post_mailbox, self.wake)
        self.requester, self.responder = Requester(self), Responder(self)

    # ------------------------------------------------------------------------------- for both sides

    @property
    def access(self):
        """What the QP permits its peer."""
        return self.rights().qp_access_flags

    @property
    def max_rd_atomic(self):
        """Reads and atomics under way at most."""
        return self.rights().max_rd_atomic

    @property
    def max_dest_rd_atomic(self):
        """The same of the peer's."""
        return self.rights().max_dest_rd_atomic

    @property
    def may_answer(self):
        """Something can be sent."""
        return self.engine.sender is not None

    def post(self, sges, **fields):
        """Send a message and return its :class:`~weft.driver.protocol.segment.Request`."""
        request = Request(0, sges, fields.pop("remote_va", 0), fields.pop("rkey", 0), **fields)
        self.engine.sender.post(request)
        return request

    def known(self, data, stage):
        """Fields of a message of bytes that the driver has: in its descriptor, or else in memory where ``stage`` puts
        them."""
        if len(data) <= self.inline_bytes:
            return {"sges": [(0, len(data), 0)], "inline": data}
        return {"sges": [stage(data)]}

    def _post_mailbox(self, sges, end):
        """Send what a mailbox tells. Who asks says with which PSN the answers have to begin: a peer that only answers,
        in RTR, was told by nobody."""
        if end.kind is Kind.MAILBOX_ASK:
            end.imm = self.rights().rq_psn
        return self.post(sges, end=end)

    def post_write(self, op, sges, sequence, inline=None):
        """The same as :meth:`post` for a write operation."""
        request = Request(0, sges, op.remote_va, op.rkey, op.imm, op, None, None, sequence, op.solicited, inline=inline)
        self.engine.sender.post(request)
        return request

    def take_receive(self):
        """The next receive request, or None."""
        return self.receives.take(self.wake)

    def completed(self, count):
        """So many more requests of the peer are done with."""
        self.engine.receiver.completed(count)

    def refuse(self, psn, syndrome):
        """The message with this PSN is one that the peer must not send."""
        self.engine.receiver.refuse(psn, syndrome)

    def complete_receive(self, wr, status, end=None):
        self.engine.complete_receive(wr, status, end)

    def flush_receives(self):
        self.engine.flush_receives()

    # --------------------------------------------------------------------------------- for the engine

    def on_message(self, psn, end):
        """The next message of the peer."""
        if end.kind in REQUESTS:
            self.responder.on_request(psn, end)
            return
        try:
            if end.kind is Kind.MAILBOX_ASK and self.engine.sender is None:
                self.engine.start_answering(end.imm % (1 << wire.PSN_BITS))
            if end.kind in _MAILBOX:
                right = self.mailbox.on_message(end)
            elif end.kind is Kind.SEND_DATA:
                right = self.responder.on_data(end)
            elif end.kind in _ANSWERS:
                right = self.requester.on_answer(end)
                if not right and self.requester.failed is None:
                    self.fail(WCStatus.BAD_RESP_ERR)
                    return
            else:
                right = False
        except MemoryError:
            self.refuse(psn, OPERATIONAL)
            return
        if not right:
            self.refuse(psn, INVALID)

    def pump(self):
        """Start and complete what can be."""
        if self.responder.entries or self.responder.failed:
            self.responder.pump()
        if self.engine.sender is not None:
            if self.mailbox.owes_answer:
                self.mailbox.pump()
            if self.requester.waiting or self.requester.open or self.requester.failed is not None:
                self.requester.pump()

    def fail_in_turn(self, psn, status):
        """What the message with this PSN was sent for will not succeed: an operation fails when those before it are
        complete; without an answer to the peer, everything ends."""
        if self.requester.fail_in_turn(psn, status):
            return
        request = self.engine.sender.queue.request_at(psn)
        if request is not None and isinstance(request.cookie, Answer):
            self.refuse(request.cookie.psn, OPERATIONAL)
            self.engine.receiver.repeat_last()
        self.fail(status)

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
        self.receives.leave(self.wake)
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
