"""Event loop of a queue pair: takes reports, control frames and time; issues doorbells, frames and completions."""

from weft.hdl.contract import abi, wire

from ..operation.connection import Connection
from ..operation.operation import WRITES
from ..operation.resources import Resources
from ..protocol.aeth import ANSWERS, ASKS, Answer, PathQuery
from ..protocol.control import ControlFrame
from ..protocol.source_port import FIRST_PORT, PORT_MASK, PortDraw
from ..queue.command import PendingCommand
from ..queue.control_frames import PATH_QUERIES
from ..receive.hole_list import LinkDoorbell
from ..receive.receiver import CumDoorbell
from ..terms.enums import EventType, WCStatus
from .header_template import HeaderTemplate

_OF_PACKETS = frozenset({
    abi.ReportKind.MESSAGE_END, abi.ReportKind.PROGRESS, abi.ReportKind.PROBE, abi.ReportKind.ERROR,
    abi.ReportKind.UNMATCHED})
_REFUSED = {wire.Syndrome.NAK_REMOTE_ACCESS: EventType.QP_ACCESS_ERR,
            wire.Syndrome.NAK_INVALID_REQUEST: EventType.QP_REQ_ERR}
_SUCCESS, _ACKNOWLEDGE, _PACED = WCStatus.SUCCESS, wire.Opcode.ACKNOWLEDGE, abi.ReportKind.PACED
_LINK, _CUM, _RATE, _LIMIT = (
    abi.REGISTER[f"{name}_doorbell"].offset for name in ("link", "cum", "rate", "limit"))
_VALUE_SHIFT = abi.CUM_DOORBELL.shift_of("psn")     # that of ``nodes`` as well
_BLOCK_SHIFT = abi.LINK_DOORBELL.shift_of("block")
_LOCAL_PROTECTION = frozenset(
    {abi.Reason.BAD_KEY, abi.Reason.OUT_OF_RANGE, abi.Reason.NO_PERMISSION, abi.Reason.WRONG_PD, abi.Reason.DMA_ERROR}
)


GAP_CHANGE = 1024       # a change of the rate by less than one part in as many is not passed to the card


class QpEngine:
    """Engine of a queue pair: one incarnation of a QP index, from RESET to RESET.

    Parameters
    ----------
    card : CardEngine
    queues : Queues
        Of this incarnation.
    pd : int
        Protection domain.
    rights : callable
        See :class:`~weft.driver.operation.resources.Resources`.
    notify : callable(EventType)
        Receives asynchronous events.
    start_answering : callable(psn)
        Called in RTR for a request of the peer whose response needs a sender, which must begin with this PSN.

    Attributes
    ----------
    index, generation : int
        Identification of this incarnation between card and driver.
    path : Path or None
        The peer, from RTR on.
    receiver : Receiver or None
        From RTR on.
    sender : Sender or None
        From RTS on.
    operations : Connection
        Posted operations, and requests of the peer.
    on_card : bool
        The card has the QP.
    in_error : bool
        All posted operations are flushed, and so are later ones. The card is notified, and drops the peer's packets.
        A lost NAK is repeated when the peer probes.
    card_notified : PendingCommand or None
        Command that notifies the card of the error.
    leaving : bool
        The QP is about to be destroyed on the card, which needs no notification of an error.
    looped : bool
        The peer belongs to the same card.
    draining : bool
        No new request starts, and some that were started are incomplete.
    """

    send_error = False     # SQE is a state of unreliable QPs

    def __init__(self, card, queues, *, pd, rights, notify, start_answering):
        self.card, self.queues, self.qp_num = card, queues, queues.qp_num
        self.index, self.generation = card.qps.parts(self.qp_num)
        self._incarnation = int.from_bytes(abi.CUM_DOORBELL.pack(qpn=self.index, generation=self.generation), "little")
        self._mark_active = card.qps.mark_active
        self.path = self.receiver = self.sender = self._header_template = None
        self.on_card = self.in_error = self.leaving = self.draining = self.looped = False
        self._notify, self._notify_drained, self._received = notify, False, False
        self.card_notified = None
        self.ect = False            # switches may mark what the sender sends
        self._port = self._ports = None      # port taken instead of the first one; source of those of answers
        self._asked = []             # ports of questions
        self._pace = self._pace_limit = None     # gap and limit that the pacer has
        self._flushing = False       # a command lets the pacer discard what it has
        self._reported = True        # the receiver got a report since it last settled
        queues.wake, queues.notify = self.wake, lambda event_type: self._notify(event_type)
        self._resources = Resources(self.index, pd, card.lender, rights, card.inline_bytes,
                                    failed=lambda problem: self.on_unexpected(problem))
        self.operations = Connection(self._resources, queues, card.lender, wake=self.wake, fail=self.fail,
                                     start_answering=start_answering)
        self._posted = self.operations.requester.waiting

    # ------------------------------------------------------------------------------- from the QP

    def start_receiving(self, path, receiver):
        """Start to receive from ``path``: the card has the QP."""
        self.path, self.on_card = path, True
        self.receiver = self._resources.receiver = receiver
        self.looped = self.card.loopback.serves(self)
        self.card.qps.add(self)
        self.card.find_header_template(self)

    def start_sending(self, sender):
        """Start to send."""
        self.sender = self._resources.sender = sender
        sender.in_turn = self.operations.fail_in_turn
        if sender.flow is not None and sender.flow.ect:
            self.ect, self._header_template = True, None
            self.card.marked.add(self)
        if sender.paced:
            self._resources.inline_bytes, self._header_template = 0, None
            self._write_pace()
        if self._searches_path:
            sender.search_path(f"{self.qp_num}/{self.path.qpn}", self._take_port)
        self.wake()

    def drain(self, notify):
        """Stop starting requests. With ``notify``, SQ_DRAINED is raised when those that were started are complete."""
        self.operations.requester.closed = self.draining = True
        self._notify_drained = notify
        self._mark_active(self)

    def resume(self):
        """Start requests again."""
        self.operations.requester.closed = self.draining = False
        self._mark_active(self)

    def stop(self):
        """Free the resources of a QP that the card no longer has. Posted operations do not complete."""
        if self.on_card:
            self.card.remove_qp(self)
            self.receiver.close()
        self.on_card = False
        self.queues.forget_receives()

    def enter_time_wait(self):
        """Enter TIME-WAIT: the program destroyed the QP, and the card keeps it in ERR.

        The QP completes nothing, and sends only the frames of
        :meth:`~weft.driver.receive.receiver.Receiver.repeat_last`.
        """
        self.card.stop_sending(self)
        self.sender = self._resources.sender = None
        self.in_error, self._notify = True, lambda event_type: None
        self.queues.forget_receives()

    def wake(self):
        """Schedule the QP for the next round."""
        self._mark_active(self)

    def is_write(self, op):
        """Return true if a write alone executes the operation, without the peer's driver."""
        return op.opcode in WRITES and not self.operations.requester.needs_mailbox(op)

    def check_list(self, op):
        """Check the local memory of a plain operation with several entries."""
        self.operations.requester.check_list(op)

    def prepare(self, op):
        """Allocate what an :class:`~weft.driver.operation.operation.Operation` that is not plain needs beyond a write.

        Raises
        ------
        MemoryError
            If the card has no free resources.
        """
        self.operations.requester.prepare(op)

    def post_send(self, ops):
        """Accept operations that are plain or prepared, in order."""
        if ops:
            self._posted.extend(ops)
            if self.on_card:
                self._mark_active(self)
            else:
                self.operations.requester.pump()

    def post_recv(self, receive):
        """Accept a :class:`~weft.driver.operation.receives.Receive`."""
        if self.in_error:
            self.queues.complete_receive(receive, WCStatus.WR_FLUSH_ERR)
        else:
            self.queues.receives.post(receive)

    @property
    def outstanding(self):
        """Number of incomplete send requests."""
        return len(self.operations.requester)

    @property
    def receives(self):
        """Number of receive requests that no message has consumed."""
        return len(self.queues.receives)

    # ----------------------------------------------------------------------------- from the card

    def contain(self, method, *arguments):
        """Call a method for this QP, and pass an exception to :meth:`on_unexpected`."""
        try:
            method(*arguments)
        except Exception as problem:
            self.on_unexpected(problem)

    def on_report(self, kind, report):
        """Handle a Meta Report of this QP.

        A report of a packet from an unknown peer is only counted: the card drops the packet.
        """
        try:
            self._on_report(kind, report)
        except Exception as problem:
            self.on_unexpected(problem)

    def _on_report(self, kind, report):
        if kind in _OF_PACKETS and report.src_ip != self.path.ip:
            self.card.counts["reports_of_strangers"] += 1
            return
        if kind in _OF_PACKETS and not self._received:
            self._received = True
            if self.sender is None:
                self._notify(EventType.COMM_EST)
        if kind is abi.ReportKind.MARKED:
            self._notify_peer()
            return
        self._mark_active(self)
        if kind is _PACED:
            self._on_paced(report)
            return
        self._reported = True
        if kind is abi.ReportKind.TX_ERROR:
            self._on_refused(report)
            return
        self.receiver.on_report(kind, report)
        if kind is abi.ReportKind.QP_ERROR:
            self._notify(EventType.QP_FATAL)
            self.fail(WCStatus.FATAL_ERR)

    def _notify_peer(self):
        """Notify the peer of a mark at once; the card has limited such reports to one per interval."""
        frame = ControlFrame(wire.Opcode.CNP, 0)
        if self._may_send(frame):
            self.card.send_control(self, frame)
    def _on_paced(self, report):
        """Handle the end of paced descriptors. Those that the pacer discarded meanwhile do not count."""
        if self.sender is not None and self.sender.paced:
            ended = self.sender.on_paced(report.psn, bool(report.retransmission), report.time_ns,
                                         self.card.device.now_ns())
            self.card.paced.ended(self, ended)

    def _on_refused(self, report):
        """Handle a descriptor that the local card rejected."""
        status = WCStatus.LOC_PROT_ERR if report.reason in _LOCAL_PROTECTION else WCStatus.LOC_QP_OP_ERR
        if self.sender is None:
            self.fail(status)
        else:
            self.sender.on_refused(report.psn, status, self.card.device.now_ns())

    def on_control(self, frame, now):
        """Handle a control frame from the network. Its ICRC was checked."""
        self.contain(self._on_control, frame, now)

    def _on_control(self, frame, now):
        if frame.src_ip != self.path.ip:
            self.card.counts["control_frames_of_strangers"] += 1
            return
        self._mark_active(self)
        if frame.opcode is _ACKNOWLEDGE:
            if frame.syndrome in PATH_QUERIES:
                self._on_path_query(frame, now)
                return
            if ANSWERS[frame.syndrome] is Answer.RNR_NAK:
                self.card.counts["rnr_naks_received"] += 1
            if self.sender:
                requester = self.operations.requester
                self.sender.on_ack(frame.psn, frame.syndrome, now, frame.msn, requester.started, requester.oldest_psn,
                                   frame.came_ns)
        elif frame.opcode is wire.Opcode.CNP:
            self.card.counts["cnps_received"] += 1
            if self.sender:
                self.sender.on_cnp(now)
        elif frame.opcode is wire.Opcode.LOSS_REPORT:
            self.card.counts["loss_reports_received"] += 1
            if self.sender and len(frame.payload) >= abi.BLOCK_BYTES:
                self.sender.on_loss_report(abi.NODE.unpack(frame.payload), now)
        elif frame.opcode is wire.Opcode.RECEIVE_LIMIT:
            if self.sender:
                self.sender.on_receive_limit(frame.psn, bool(frame.limited), frame.serial, now)
        elif frame.opcode is wire.Opcode.REPORT_REQUEST:
            self.receiver.on_report_request(frame.rsn)

    def _on_path_query(self, frame, now):
        """Answer a question, or take a port with which frames arrive."""
        if not self._searches_path:
            self.card.counts["path_queries_ignored"] += 1
        elif frame.syndrome == PathQuery.ASK:
            if len(self._asked) < ASKS:
                self._asked.append(frame.sport)
        elif frame.syndrome == PathQuery.TAKE:
            self._take_port(FIRST_PORT | frame.msn & PORT_MASK)
            self.receiver.answer_again()
        elif self.sender is not None:
            self.sender.on_path(frame.msn, frame.sport, now)

    def _answer_path_queries(self):
        """Answer the questions, after the probes that arrived with them: those of a path that works come first."""
        if self._ports is None:
            self._ports = PortDraw(f"{self.qp_num}/answers")
        for port in self._asked:
            self.card.send_control(self, ControlFrame(_ACKNOWLEDGE, 0, syndrome=PathQuery.ANSWER, msn=port,
                                                      sport=self._ports.draw()))
        self._asked.clear()

    def on_unexpected(self, problem):
        """Raise an exception of work for this QP. An owner that must not fail as a whole replaces this function."""
        raise problem

    def on_card_reset(self, status):
        """Handle a reset of the card, which no longer has the QP. The oldest request completes with ``status``."""
        self.leaving = True
        self.operations.forget()
        self.fail(status)
        self.receiver.close()
        self.on_card = False

    # ---------------------------------------------------------------------------------- progress

    @property
    def deadline(self):
        """Latest time of the next :meth:`progress`, or None."""
        return self.sender.deadline if self.sender is not None else None

    def progress(self, now):
        """Do everything that is due: deliveries, responses, acknowledgements, timers, completions."""
        receiver, sender, requester = self.receiver, self.sender, self.operations.requester
        if receiver.holes.waits_for_blocks:
            receiver.link_waiting()
            self._reported = True
        if self._reported and not self.in_error and not self.leaving:
            self._reported = False
            self._take_messages()
        self.operations.pump()
        self._acknowledge()
        if self._asked:
            self._answer_path_queries()
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
            self._notify(_REFUSED.get(receiver.nak[1], EventType.QP_FATAL))
            self.fail(WCStatus.WR_FLUSH_ERR)

    def _progress_sender(self, now):
        sender, requester, mailbox = self.sender, self.operations.requester, self.operations.mailbox
        sender.await_peer(bool(requester.open) or mailbox.awaits_peer, now)
        sender.poll(now, spares=not requester.open and not requester.waiting)
        if sender.frames:
            self.card.counts["probe_timeouts"] += sender.timeouts
            sender.timeouts = 0
            self._carry_out(sender.frames)
        taken = bool(sender.completions)
        if taken:
            self._take_sent(sender.completions)
        if sender.failed is not None and not self.in_error:
            self.fail(sender.failed)
        if taken or self.in_error or requester.waiting or self.operations.responder.entries:
            self.operations.pump()
            sender.await_peer(bool(requester.open) or mailbox.awaits_peer, now)
            sender.look_for_path(now)
        if sender.paced and not self.in_error:
            self._write_pace()
        if self.draining and not self.in_error and not requester.open:
            self.draining = False
            if self._notify_drained:
                self._notify(EventType.SQ_DRAINED)

    def _write_pace(self):
        """Pass a changed rate and a changed limit to the pacer."""
        flow, write = self.sender.flow, self.card.device.write64
        gap, limit = flow.gap, flow.limit & 0xFFFF_FFFF
        if limit != self._pace_limit:
            self._pace_limit = limit
            write(_LIMIT, _word(abi.LIMIT_DOORBELL, qpn=self.index, psn=limit))
        if self._pace is None or abs(gap - self._pace) * GAP_CHANGE > self._pace:
            self._pace = gap
            write(_RATE, _word(abi.RATE_DOORBELL, qpn=self.index, gap=gap, limited=1))

    def _take_sent(self, completions):
        """Complete the messages that the peer received, and drop those that failed."""
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
            elif isinstance(action, ControlFrame) and self._may_send(action):
                self.card.send_control(self, action)

    def _may_send(self, frame):
        """Return true if the frame may be sent: in ERR, only acknowledgements, that is NAKs and a repeated last ACK."""
        return not self.in_error or frame.opcode is _ACKNOWLEDGE

    def _doorbell(self, register, value, block=0):
        """Write a doorbell word of this QP."""
        if not self.looped:     # the card has no receive state of a QP in loopback
            self.card.device.write64(register, self._incarnation | value << _VALUE_SHIFT | block << _BLOCK_SHIFT)

    @property
    def header_template(self):
        """Header template of everything that the QP sends; renewed when :attr:`path` changes."""
        if self._header_template is None or self._header_template.path is not self.path:
            self._header_template = HeaderTemplate(self.path, self.card, self.index, self.sport, ect=self.ect,
                                                   paced=self.sender is not None and self.sender.paced)
        return self._header_template

    def descriptors(self, works):
        """Pack the WORK descriptors of several :class:`~weft.driver.protocol.segment.Work` as ring entries.

        The pacer gets the limit that precedes them.
        """
        if self.sender.paced:
            self._write_pace()
        return self.header_template.descriptors.pack(works)

    def control_frame(self, frame):
        """Return the bytes of a :class:`~weft.driver.protocol.control.ControlFrame` of this QP."""
        if frame.sport is None or frame.sport == self.sport:
            return self.header_template.frames.build(frame)
        return HeaderTemplate(self.path, self.card, self.index, frame.sport).frames.build(frame)

    def own_memory(self, key):
        """Return the driver's memory that a key of this QP refers to, as a buffer. None for memory of the program."""
        return self.operations.mailbox.memory(key)

    @property
    def sport(self):
        """UDP source port, 0xC000 to 0xFFFF. It differs between QPs, so that routers spread them over paths.

        A flow label determines the first one as in libibverbs. See :class:`~weft.driver.send.path_search.PathSearch`.
        """
        if self._port is not None:
            return self._port
        if label := self.path.flow_label:
            return FIRST_PORT | (label ^ label >> 14) & PORT_MASK
        return FIRST_PORT | (self.qp_num * 0x9E37 >> 2) & PORT_MASK

    @property
    def _searches_path(self):
        return self.card.config.path_search and not self.looped

    def _take_port(self, port):
        """Send from this UDP source port, and so over another path. Descriptors that the card has keep theirs."""
        if port != self.sport:
            self._port, self._header_template = port, None
            self.card.counts["path_changes"] += 1

    # ------------------------------------------------------------------------------------- the end

    def fail(self, status):
        """Enter ERR: the oldest send request completes with ``status``, everything else is flushed."""
        if self.sender is not None:
            self.sender.fail(status)
        self._enter_error()
        self.operations.fail_all(status)
        self.wake()

    def _enter_error(self):
        if self.on_card and not self.in_error and not self.leaving:
            self.notify_card()
        self.in_error = True

    def notify_card(self):
        """Notify the card that the QP is in ERR. See :attr:`card_notified`."""
        self.card_notified = PendingCommand(abi.CommandOpcode.QP_MODIFY)
        self.card.commands.submit(abi.CommandOpcode.QP_MODIFY, self.card_notified, qpn=self.qp_num,
                                  qp_state=abi.QpState.ERR)
        self.left_rings()

    def left_rings(self):
        """Let the pacer discard what it has of a QP in ERR, when no descriptor of the QP is in the rings."""
        if (self._flushing or self.card_notified is None or not self.card.paced.holds(self)
                or self.sender is not None and self.sender.in_rings):
            return
        self._flushing = True
        self.card.commands.submit(abi.CommandOpcode.QP_MODIFY, lambda _: self.card.paced.discarded(self),
                                  qpn=self.qp_num, qp_state=abi.QpState.ERR)


def _word(layout, **fields):
    """Return a doorbell word."""
    return int.from_bytes(layout.pack(**fields), "little")
