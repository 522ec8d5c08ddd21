"""What moves a queue pair: reports, control frames and time in; doorbells, frames and completions out."""

from weft.hdl import abi, wire

from ..protocol.control import ControlFrame
from ..receive.hole_list import LinkDoorbell
from ..receive.receiver import CumDoorbell
from ..terms.enums import QPState, WCFlags, WCOpcode, WCStatus, WROpcode
from ..terms.wc import WC

COMPLETION_OPCODE = {WROpcode.RDMA_WRITE: WCOpcode.RDMA_WRITE, WROpcode.RDMA_WRITE_WITH_IMM: WCOpcode.RDMA_WRITE}
_LOCAL_PROTECTION = frozenset(
    {abi.Reason.BAD_KEY, abi.Reason.OUT_OF_RANGE, abi.Reason.NO_PERMISSION, abi.Reason.WRONG_PD}
)


class QpEngine:
    """The part of a :class:`~weft.driver.verbs.qp.QP` that the context drives.

    Attributes
    ----------
    sender, receiver : Sender, Receiver
        Protocol state, from RTR on.
    """

    def on_report(self, kind, report):
        """A Meta Report of this QP."""
        self.context.mark_active(self)
        if kind is abi.ReportKind.NODE:
            self.receiver.on_node(report)
        elif kind is abi.ReportKind.RETIRE:
            self.receiver.on_retire(report)
        elif kind is abi.ReportKind.UNMATCHED:
            self.receiver.on_unmatched(report)
        elif kind is abi.ReportKind.TX_ERROR:
            self._on_refused(report)
        elif kind is abi.ReportKind.ERROR and report.src_ip != self.attr.dest_ip:
            self.context.counts["errors_of_strangers"] += 1   # somebody else's mistake is no reason to give up
        else:
            self.receiver.on_event(report)
            if kind is abi.ReportKind.QP_ERROR:
                self.fail(WCStatus.FATAL_ERR)

    def _on_refused(self, report):
        """The own card refused a descriptor."""
        status = WCStatus.LOC_PROT_ERR if report.reason in _LOCAL_PROTECTION else WCStatus.LOC_QP_OP_ERR
        if self.sender is None:
            self.fail(status)
        else:
            self.sender.on_refused(report.psn, status, self.context.device.now_ns())

    def on_control(self, frame, now):
        """A control frame from the network, its ICRC right."""
        if frame.src_ip != self.attr.dest_ip:
            return
        self.context.mark_active(self)
        if frame.opcode is wire.Opcode.ACKNOWLEDGE:
            if self.sender:
                self.sender.on_ack(frame.psn, frame.syndrome, now)
        elif frame.generation != self.generation:
            return
        elif frame.opcode is wire.Opcode.LOSS_REPORT:
            if self.sender and len(frame.payload) >= abi.BLOCK_BYTES:
                self.sender.on_loss_report(abi.NODE.unpack(frame.payload), now)
        elif frame.opcode is wire.Opcode.RECEIVE_LIMIT:
            if self.sender:
                self.sender.on_receive_limit(frame.psn, bool(frame.limited), frame.serial, now)
        elif frame.opcode is wire.Opcode.REPORT_REQUEST:
            self.receiver.on_report_request(frame.rsn)

    def progress(self, now):
        """Everything that is due: deliveries, acknowledgements, timers, completions."""
        receiver, sender = self.receiver, self.sender
        if receiver.holes.waits_for_blocks:
            receiver.link_waiting()
        receiver.settle()
        while receiver.messages and (receiver.messages[0].imm is None or self._recv):
            if self.qp_state is QPState.ERR:
                break
            message = receiver.take_message()
            if message.imm is not None:
                self._complete_recv(self._recv.popleft(), WCStatus.SUCCESS, message)
        receiver.acknowledge()
        self._carry_out(receiver.actions)
        if receiver.nak_sent and self.qp_state is not QPState.ERR:
            self.fail(WCStatus.WR_FLUSH_ERR)
        if sender is not None:
            sender.poll(now)
            self._carry_out(sender.frames)
            self._collect_completions()
            if sender.failed is not None and not self._flushed:
                self._enter_error()

    def _collect_completions(self):
        while self.sender.completions:
            self._complete_send(*self.sender.completions.popleft())

    @property
    def deadline(self):
        """When :meth:`progress` wants to be called at the latest, or None."""
        return self.sender.deadline if self.sender is not None else None

    def _carry_out(self, actions):
        while actions:
            action = actions.popleft()
            if isinstance(action, LinkDoorbell):
                self.context.doorbell(
                    "link_doorbell",
                    abi.LINK_DOORBELL,
                    qpn=self.qp_num,
                    generation=self.generation,
                    nodes=action.nodes,
                )
            elif isinstance(action, CumDoorbell):
                self.context.doorbell(
                    "cum_doorbell",
                    abi.CUM_DOORBELL,
                    qpn=self.qp_num,
                    generation=self.generation,
                    psn=action.psn & 0xFFFF_FFFF,
                )
            elif isinstance(action, ControlFrame):
                self.context.send_control(self, action)

    def work_descriptor(self, fields):
        """A WORK entry of this connection."""
        attr = self.attr
        return abi.WORK.pack(
            pmtu=attr.path_mtu,
            sqpn=self.qp_num,
            dqpn=attr.dest_qp_num,
            dst_mac=attr.dest_mac,
            dst_ip=attr.dest_ip,
            sport=self.sport,
            peer_generation=attr.dest_generation,
            **fields,
        )

    @property
    def sport(self):
        """UDP source port: 0xC000 to 0xFFFF, different for different QPs, so that routers spread them."""
        return 0xC000 | (self.qp_num * 0x9E37 >> 2) & 0x3FFF

    def _complete_send(self, request, status):
        if request.signaled or status is not WCStatus.SUCCESS:
            opcode = COMPLETION_OPCODE[request.cookie]
            self.scq.push(WC(request.wr_id, status, opcode, self.qp_num, byte_len=request.length))

    def _complete_recv(self, wr, status, message=None):
        if message is None:
            self.rcq.push(WC(wr.wr_id, status, WCOpcode.RECV, self.qp_num))
        else:
            self.rcq.push(
                WC(
                    wr.wr_id,
                    status,
                    WCOpcode.RECV_RDMA_WITH_IMM,
                    self.qp_num,
                    byte_len=message.length,
                    imm_data=message.imm,
                    wc_flags=WCFlags.WITH_IMM,
                )
            )

    def fail(self, status):
        """Into ERR: the oldest send request gets ``status``, everything else is flushed."""
        if self.sender is not None:
            self.sender.fail(status)
            self.context.mark_active(self)
        if not self._flushed:
            self._enter_error()

    def _enter_error(self):
        # The card keeps receiving for the QP, so that the peer's probes are still answered (with the NAK).
        self._flushed = True
        self.attr.qp_state = QPState.ERR
        while self._recv:
            self._complete_recv(self._recv.popleft(), WCStatus.WR_FLUSH_ERR)

    def on_card_reset(self):
        """The card was reset and does not know the QP any more."""
        self.fail(WCStatus.WR_FLUSH_ERR)
        if self.sender is not None:
            self._collect_completions()
        self.receiver.close()
        self._on_card = False
