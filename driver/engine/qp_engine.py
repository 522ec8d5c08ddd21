"""What moves a queue pair: reports, control frames and time in; doorbells, frames and completions out."""

from weft.hdl.contract import abi, wire

from ..operation.connection import Connection
from ..operation.operation import WRITES
from ..operation.resources import Resources
from ..protocol.control import ControlFrame
from ..queue.command import PendingCommand
from ..receive.hole_list import LinkDoorbell
from ..receive.receiver import CumDoorbell
from ..terms.enums import EventType, WCStatus
from .way import Way

_OF_PACKETS = frozenset({
    abi.ReportKind.MESSAGE_END, abi.ReportKind.PROGRESS, abi.ReportKind.PROBE, abi.ReportKind.ERROR,
    abi.ReportKind.UNMATCHED})
_REFUSED = {wire.Syndrome.NAK_REMOTE_ACCESS: EventType.QP_ACCESS_ERR,
            wire.Syndrome.NAK_INVALID_REQUEST: EventType.QP_REQ_ERR}
_SUCCESS, _ACKNOWLEDGE = WCStatus.SUCCESS, wire.Opcode.ACKNOWLEDGE
_LINK, _CUM = (abi.REGISTER[name].offset for name in ("link_doorbell", "cum_doorbell"))
_VALUE_SHIFT = abi.CUM_DOORBELL.shift_of("psn")     # that of ``nodes`` as well
_BLOCK_SHIFT = abi.LINK_DOORBELL.shift_of("block")
_LOCAL_PROTECTION = frozenset(
    {abi.Reason.BAD_KEY, abi.Reason.OUT_OF_RANGE, abi.Reason.NO_PERMISSION, abi.Reason.WRONG_PD}
)


class QpEngine:
    """A queue pair as its card's engine drives it: one life of one QPN, from RESET to RESET.

    Parameters
    ----------
    card : CardEngine
    queues : Queues
        Of this life.
    pd : int
        The protection domain.
    rights : callable
        See :class:`~weft.driver.operation.resources.Resources`.
    tell : callable(EventType)
        Gets what happens that no completion speaks of.
    start_answering : callable(psn)
        Called in RTR when the peer asks for something that takes a sender, which is to begin with this PSN.

    Attributes
    ----------
    index, generation : int
        What card and driver call this life between themselves.
    path : Path or None
        The peer, from RTR on.
    receiver : Receiver or None
        From RTR on.
    sender : Sender or None
        From RTS on.
    operations : Connection
        What was posted, and what the peer asked for.
    on_card : bool
        The card knows the QP.
    in_error : bool
        Everything that was posted is flushed, and so is whatever is posted from now on. The card is told, and takes
        nothing of the peer any more; a NAK that got lost is repeated when the peer probes.
    told_card : PendingCommand or None
        The command that tells the card so.
    leaving : bool
        The card is about to forget the QP and need not be told of an error.
    looped : bool
        The peer is of the same card.
    draining : bool
        No request is begun any more, and not all that were are finished.
    """

    def __init__(self, card, queues, *, pd, rights, tell, start_answering):
        self.card, self.queues, self.qp_num = card, queues, queues.qp_num
        self.index, self.generation = card.qps.parts(self.qp_num)
        self._life = int.from_bytes(abi.CUM_DOORBELL.pack(qpn=self.index, generation=self.generation), "little")
        self._mark_active = card.qps.mark_active
        self.path = self.receiver = self.sender = self._way = None
        self.on_card = self.in_error = self.leaving = self.draining = self.looped = False
        self._tell, self._tell_drained, self._heard = tell, False, False
        self.told_card = None
        self._news = True        # the receiver heard of something since it last worked out what is complete
        queues.wake, queues.tell = self.wake, lambda event_type: self._tell(event_type)
        self._resources = Resources(self.index, pd, card.lender, rights, card.inline_bytes)
        self.operations = Connection(self._resources, queues, card.lender, wake=self.wake, fail=self.fail,
                                     start_answering=start_answering)
        self._posted = self.operations.requester.waiting

    # ------------------------------------------------------------------------------- from the QP

    def start_receiving(self, path, receiver):
        """The card has the QP, which receives from ``path``."""
        self.path, self.on_card = path, True
        self.receiver = self._resources.receiver = receiver
        self.looped = self.card.loopback.serves(self)
        self.card.qps.add(self)
        self.card.find_way(self)

    def start_sending(self, sender):
        """It sends as well."""
        self.sender = self._resources.sender = sender
        sender.in_turn = self.operations.fail_in_turn
        self.wake()

    def drain(self, tell):
        """Begin no further request; ``tell`` says whether there is an event when those that were begun are finished."""
        self.operations.requester.closed = self.draining = True
        self._tell_drained = tell
        self._mark_active(self)

    def resume(self):
        """Begin requests again."""
        self.operations.requester.closed = self.draining = False
        self._mark_active(self)

    def stop(self):
        """The card has it no more, and gives back what it held for it; nothing that was posted is completed."""
        if self.on_card:
            self.card.remove_qp(self)
            self.receiver.close()
        self.on_card = False
        self.queues.forget_receives()

    def depart(self):
        """Its program destroyed it, and the card keeps it in ERR: it completes nothing and says nothing but what
        :meth:`~weft.driver.receive.receiver.Receiver.repeat_last` says."""
        self.card.stop_sending(self)
        self.sender = self._resources.sender = None
        self.in_error, self._tell = True, lambda event_type: None
        self.queues.forget_receives()

    def wake(self):
        """There is something to do in the next round."""
        self._mark_active(self)

    def is_write(self, op):
        """It is done by a write alone, of which the peer's driver need not know."""
        return op.opcode in WRITES and not self.operations.requester.needs_mailbox(op)

    def prepare(self, op):
        """Get what an :class:`~weft.driver.operation.operation.Operation` that is not plain takes beyond a write.

        Raises
        ------
        MemoryError
            If the card has no room for it.
        """
        self.operations.requester.prepare(op)

    def post_send(self, ops):
        """Take operations that are plain or prepared, in order."""
        if ops:
            self._posted.extend(ops)
            if self.on_card:
                self._mark_active(self)
            else:
                self.operations.requester.pump()

    def post_recv(self, receive):
        """Take a :class:`~weft.driver.operation.receives.Receive`."""
        if self.in_error:
            self.queues.complete_receive(receive, WCStatus.WR_FLUSH_ERR)
        else:
            self.queues.receives.post(receive)

    @property
    def outstanding(self):
        """Send requests not completed."""
        return len(self.operations.requester)

    @property
    def receives(self):
        """Receive requests that no message took."""
        return len(self.queues.receives)

    # ----------------------------------------------------------------------------- from the card

    def on_report(self, kind, report):
        """A Meta Report of this QP. One of a stranger's packet says nothing: the card lets none pass."""
        if kind in _OF_PACKETS and report.src_ip != self.path.ip:
            self.card.counts["reports_of_strangers"] += 1
            return
        if kind in _OF_PACKETS and not self._heard:
            self._heard = True
            if self.sender is None:
                self._tell(EventType.COMM_EST)
        self._mark_active(self)
        self._news = True
        if kind is abi.ReportKind.TX_ERROR:
            self._on_refused(report)
            return
        self.receiver.on_report(kind, report)
        if kind is abi.ReportKind.QP_ERROR:
            self._tell(EventType.QP_FATAL)
            self.fail(WCStatus.FATAL_ERR)

    def _on_refused(self, report):
        """The own card refused a descriptor."""
        status = WCStatus.LOC_PROT_ERR if report.reason in _LOCAL_PROTECTION else WCStatus.LOC_QP_OP_ERR
        if self.sender is None:
            self.fail(status)
        else:
            self.sender.on_refused(report.psn, status, self.card.device.now_ns())

    def on_control(self, frame, now):
        """A control frame from the network, its ICRC right."""
        if frame.src_ip != self.path.ip:
            self.card.counts["control_frames_of_strangers"] += 1
            return
        self._mark_active(self)
        if frame.opcode is _ACKNOWLEDGE:
            if self.sender:
                requester = self.operations.requester
                self.sender.on_ack(frame.psn, frame.syndrome, now, frame.msn, requester.started, requester.oldest_psn)
        elif frame.opcode is wire.Opcode.LOSS_REPORT:
            if self.sender and len(frame.payload) >= abi.BLOCK_BYTES:
                self.sender.on_loss_report(abi.NODE.unpack(frame.payload), now)
        elif frame.opcode is wire.Opcode.RECEIVE_LIMIT:
            if self.sender:
                self.sender.on_receive_limit(frame.psn, bool(frame.limited), frame.serial, now)
        elif frame.opcode is wire.Opcode.REPORT_REQUEST:
            self.receiver.on_report_request(frame.rsn)

    def on_card_reset(self, status):
        """The card was reset and does not know the QP any more. The oldest request ends with ``status``."""
        self.leaving = True
        self.operations.forget()
        self.fail(status)
        self.receiver.close()
        self.on_card = False

    # ---------------------------------------------------------------------------------- progress

    @property
    def deadline(self):
        """When :meth:`progress` wants to be called at the latest, or None."""
        return self.sender.deadline if self.sender is not None else None

    def progress(self, now):
        """Everything that is due: deliveries, answers, acknowledgements, timers, completions."""
        receiver, sender, requester = self.receiver, self.sender, self.operations.requester
        if receiver.holes.waits_for_blocks:
            receiver.link_waiting()
            self._news = True
        if self._news and not self.in_error and not self.leaving:
            self._news = False
            self._take_messages()
        self.operations.pump()
        self._acknowledge()
        if sender is not None and (requester.open or requester.waiting or self.operations.responder.entries
                                   or self.draining or not sender.at_rest):
            self._progress_sender(now)

    def _take_messages(self):
        receiver, take = self.receiver, self.operations.on_message
        receiver.settle()
        while receiver.messages and not self.in_error:
            message = receiver.take_message()
            take(message.psn, message.end)

    def _acknowledge(self):
        receiver, responder = self.receiver, self.operations.responder
        if self.in_error:
            receiver.repeat_last()
        else:
            receiver.held = len(responder.entries)
            if receiver.owes_answer:
                if receiver.held or receiver.nak is not None:
                    receiver.acknowledge(responder.waiting_psn, responder.quiet)
                else:
                    receiver.acknowledge()
        if receiver.actions:
            self._carry_out(receiver.actions)
        if receiver.nak_sent and not self.in_error:
            self._tell(_REFUSED.get(receiver.nak[1], EventType.QP_FATAL))
            self.fail(WCStatus.WR_FLUSH_ERR)

    def _progress_sender(self, now):
        sender, requester, mailbox = self.sender, self.operations.requester, self.operations.mailbox
        sender.await_peer(bool(requester.open) or mailbox.awaits_peer, now)
        sender.poll(now, spares=not requester.open and not requester.waiting)
        if sender.frames:
            self._carry_out(sender.frames)
        taken = bool(sender.completions)
        if taken:
            self._take_sent(sender.completions)
        if sender.failed is not None and not self.in_error:
            self.fail(sender.failed)
        if taken or self.in_error or requester.waiting or self.operations.responder.entries:
            self.operations.pump()
            sender.await_peer(bool(requester.open) or mailbox.awaits_peer, now)
        if self.draining and not self.in_error and not requester.open:
            self.draining = False
            if self._tell_drained:
                self._tell(EventType.SQ_DRAINED)

    def _take_sent(self, completions):
        """Messages arrived at the peer, or will not."""
        for request, status in completions:
            if status is _SUCCESS:
                request.on_sent()
        completions.clear()

    def _carry_out(self, actions):
        while actions:
            action = actions.popleft()
            if isinstance(action, LinkDoorbell):
                self._doorbell(_LINK, action.nodes, action.block)
            elif isinstance(action, CumDoorbell):
                self._doorbell(_CUM, action.psn & 0xFFFF_FFFF)
            elif isinstance(action, ControlFrame) and self._may_say(action):
                self.card.send_control(self, action)

    def _may_say(self, frame):
        """In ERR nothing is said but a NAK: neither that something arrived nor that it shall come again."""
        return not self.in_error or frame.opcode is _ACKNOWLEDGE

    def _doorbell(self, register, value, block=0):
        """Write a doorbell word of this QP."""
        if not self.looped:     # of which the card saw nothing that it could forget
            self.card.device.write64(register, self._life | value << _VALUE_SHIFT | block << _BLOCK_SHIFT)

    @property
    def way(self):
        """What is the same in everything that it sends, for as long as :attr:`path` is."""
        if self._way is None or self._way.path is not self.path:
            self._way = Way(self.path, self.card, self.index, self.sport)
        return self._way

    def descriptors(self, works):
        """The WORK descriptors of several :class:`~weft.driver.protocol.segment.Work`, as ring entries."""
        return self.way.descriptors.pack(works)

    def own_memory(self, key):
        """Memory of the driver's own behind a key of this QP, as a buffer, or None if it is the program's."""
        return self.operations.mailbox.memory(key)

    @property
    def sport(self):
        """UDP source port: 0xC000 to 0xFFFF, different for different QPs, so that routers spread them; a flow label
        says it as in libibverbs."""
        if label := self.path.flow_label:
            return 0xC000 | (label ^ label >> 14) & 0x3FFF
        return 0xC000 | (self.qp_num * 0x9E37 >> 2) & 0x3FFF

    # ------------------------------------------------------------------------------------- the end

    def fail(self, status):
        """Into ERR: the oldest send request gets ``status``, everything else is flushed."""
        if self.sender is not None:
            self.sender.fail(status)
        self._enter_error()
        self.operations.fail_all(status)
        self.wake()

    def _enter_error(self):
        if self.on_card and not self.in_error and not self.leaving:
            self.tell_card()
        self.in_error = True

    def tell_card(self):
        """Tell the card that it is in ERR; see :attr:`told_card`."""
        self.told_card = PendingCommand(abi.CommandOpcode.QP_MODIFY)
        self.card.commands.submit(abi.CommandOpcode.QP_MODIFY, self.told_card, qpn=self.qp_num,
                                  qp_state=abi.QpState.ERR)
