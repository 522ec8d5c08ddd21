"""Queue pairs."""

import collections
import secrets

from weft.hdl import abi, wire

from .cq import WC
from .enums import MTU, AccessFlag, QPAttrMask, QPState, QPType, SendFlags, WCFlags, WCOpcode, WCStatus, WROpcode
from .qp_attr import QPAttr, QPCap, QPConnection, QPInitAttr
from .recovery import CumDoorbell, LinkDoorbell, Receiver
from .segment import Request
from .sequence import ControlFrame, Sender

__all__ = ["QP", "QPAttr", "QPCap", "QPConnection", "QPInitAttr"]
_OPCODE = {WROpcode.RDMA_WRITE: WCOpcode.RDMA_WRITE, WROpcode.RDMA_WRITE_WITH_IMM: WCOpcode.RDMA_WRITE}
IBV_TIMEOUT_UNIT_NS = 4096


class QP:
    """A reliable connection.

    Parameters
    ----------
    pd : PD
    init_attr : QPInitAttr
    psn : int or None
        First PSN sent; random by default.

    Attributes
    ----------
    qp_num, generation : int
    sender, receiver : Sender, Receiver
        Protocol state, from RTR on.
    """

    def __init__(self, pd, init_attr, *, psn=None):
        if init_attr.qp_type is not QPType.RC:
            raise ValueError("only RC queue pairs exist")
        if init_attr.scq is None or init_attr.rcq is None:
            raise ValueError("a QP needs a send CQ and a receive CQ")
        self.pd, self.context = pd, pd.context
        self.init_attr, self.cap = init_attr, init_attr.cap
        self.scq, self.rcq = init_attr.scq, init_attr.rcq
        self.qp_num, self.generation = self.context.new_qpn()
        self.attr = QPAttr(sq_psn=secrets.randbelow(1 << wire.PSN_BITS) if psn is None else psn)
        self.sender = self.receiver = None
        self._recv = collections.deque()
        self._on_card = False
        self._flushed = False
        self.closed = False
        pd.children.add(self)

    # ------------------------------------------------------------------------------------- states

    @property
    def qp_state(self):
        return self.attr.qp_state

    @property
    def connection(self):
        """What the peer needs."""
        return QPConnection(self.qp_num, self.attr.sq_psn, self.generation, self.context.mac, self.context.ip)

    def to_init(self, attr=None):
        """RESET to INIT."""
        if self.qp_state is not QPState.RESET:
            raise ValueError(f"QP {self.qp_num} is {self.qp_state.name}, not RESET")
        if attr is not None:
            self.attr.qp_access_flags = AccessFlag(attr.qp_access_flags)
        self.attr.qp_state = QPState.INIT

    def to_rtr(self, attr):
        """INIT to RTR: ``attr`` names the peer."""
        if self.qp_state is not QPState.INIT:
            raise ValueError(f"QP {self.qp_num} is {self.qp_state.name}, not INIT")
        for name in ("path_mtu", "rq_psn", "dest_qp_num", "dest_generation", "dest_mac", "dest_ip"):
            setattr(self.attr, name, getattr(attr, name))
        receiver = Receiver(
            qpn=self.qp_num, generation=self.generation, psn=self.attr.rq_psn, pool=self.context.knitting,
            settle_ns=self.context.config.retire_settle_ns,
        )
        try:
            self.context.commands.call(
                abi.CommandOpcode.QP_CREATE,
                qpn=self.qp_num,
                generation=self.generation,
                pd=self.pd.handle,
                psn=self.attr.rq_psn,
                address=receiver.head_block * abi.BLOCK_BYTES,
                access=self.attr.qp_access_flags & 0xF,
                qp_state=abi.QpState.RTS,
            )
        except Exception:
            receiver.close()
            raise
        self.receiver = receiver
        self._on_card = True
        self.attr.qp_state = QPState.RTR
        self.context.add_qp(self)

    def to_rts(self, attr=None):
        """RTR to RTS."""
        if self.qp_state is not QPState.RTR:
            raise ValueError(f"QP {self.qp_num} is {self.qp_state.name}, not RTR")
        if attr is not None:
            for name in ("timeout", "retry_cnt", "rnr_retry", "probe_timeout_ns"):
                setattr(self.attr, name, getattr(attr, name))
            self.attr.sq_psn = attr.sq_psn or self.attr.sq_psn
        probe_ns = self.attr.probe_timeout_ns or self.context.config.probe_timeout_ns
        timeout_ns = IBV_TIMEOUT_UNIT_NS << self.attr.timeout if self.attr.timeout else 0
        self.sender = Sender(
            psn=self.attr.sq_psn,
            pmtu=wire.PMTUS[self.attr.path_mtu],
            probe_ns=probe_ns,
            timeout_ns=timeout_ns and max(timeout_ns, probe_ns),
            retry_cnt=self.attr.retry_cnt,
            rnr_retry=self.attr.rnr_retry,
            chunk_bytes=self.context.config.chunk_bytes,
        )
        self.attr.qp_state = QPState.RTS

    def modify(self, attr, mask):
        """As ibv_modify_qp, for the state transitions and attributes that exist."""
        mask = QPAttrMask(mask)
        if not mask & QPAttrMask.STATE:
            if mask & QPAttrMask.ACCESS_FLAGS:
                self.attr.qp_access_flags = AccessFlag(attr.qp_access_flags)
            return
        steps = {QPState.INIT: self.to_init, QPState.RTR: self.to_rtr, QPState.RTS: self.to_rts}
        if attr.qp_state is QPState.ERR:
            self.fail(WCStatus.WR_FLUSH_ERR)
        elif attr.qp_state is QPState.RESET:
            self._reset()
        elif attr.qp_state in steps:
            steps[attr.qp_state](attr)
        else:
            raise ValueError(f"no transition to {attr.qp_state.name}")

    def query(self):
        """(QPAttr, QPInitAttr)."""
        return self.attr, self.init_attr

    def connect(self, peer, *, path_mtu=MTU.MTU_1024, **attributes):
        """RESET to RTS with the peer's :class:`QPConnection`."""
        attr = QPAttr(
            path_mtu=MTU(path_mtu),
            rq_psn=peer.psn,
            dest_qp_num=peer.qpn,
            dest_generation=peer.generation,
            dest_mac=peer.mac,
            dest_ip=peer.ip,
            sq_psn=self.attr.sq_psn,
            **attributes,
        )
        self.to_init(attr)
        self.to_rtr(attr)
        self.to_rts(attr)

    # --------------------------------------------------------------------------------------- work

    def post_send(self, wr):
        """Queue a send work request.

        Raises
        ------
        ValueError
            If the QP is not in RTS or ERR, or cannot do it.
        BufferError
            If ``max_send_wr`` requests are outstanding.
        """
        if self.sender is None:
            raise ValueError(f"QP {self.qp_num} is {self.qp_state.name}; it cannot send")
        if wr.opcode not in _OPCODE:
            raise ValueError(f"{WROpcode(wr.opcode).name} is not a write")
        if len(wr.sg) > self.cap.max_send_sge:
            raise ValueError(f"{len(wr.sg)} SGEs; at most {self.cap.max_send_sge}")
        if self.sender.outstanding >= self.cap.max_send_wr:
            raise BufferError(f"{self.cap.max_send_wr} send requests are outstanding")
        request = Request(
            wr.wr_id,
            [(s.addr, s.length, s.lkey) for s in wr.sg],
            wr.remote_addr,
            wr.rkey,
            imm=wr.imm_data if wr.opcode is WROpcode.RDMA_WRITE_WITH_IMM else None,
            signaled=bool(self.init_attr.sq_sig_all or wr.send_flags & SendFlags.SIGNALED),
            cookie=wr.opcode,
        )
        self.sender.post(request)
        self.context.mark_active(self)

    def post_recv(self, wr):
        """Queue a receive work request: each RDMA WRITE WITH IMMEDIATE of the peer takes one."""
        if self.qp_state is QPState.RESET:
            raise ValueError(f"QP {self.qp_num} is RESET; it cannot receive")
        if len(self._recv) >= self.cap.max_recv_wr:
            raise BufferError(f"{self.cap.max_recv_wr} receive requests are outstanding")
        if self.qp_state is QPState.ERR:
            self._complete_recv(wr, WCStatus.WR_FLUSH_ERR)
        else:
            self._recv.append(wr)
            self.context.mark_active(self)

    # ----------------------------------------------------------------------- called by the context

    def on_report(self, kind, report):
        """A Meta Report of this QP."""
        self.context.mark_active(self)
        if kind is abi.ReportKind.NODE:
            self.receiver.on_node(report)
        elif kind is abi.ReportKind.RETIRE:
            self.receiver.on_retire(report, self.context.device.now_ns())
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
        elif frame.opcode is wire.Opcode.REPORT_REQUEST:
            self.receiver.on_report_request(frame.rsn)

    def progress(self, now):
        """Everything that is due: deliveries, acknowledgements, timers, completions."""
        receiver, sender = self.receiver, self.sender
        if receiver.waits_for_blocks:
            receiver.link_waiting()
        receiver.settle(now)
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
            while sender.completions:
                self._complete_send(*sender.completions.popleft())
            if sender.failed is not None and not self._flushed:
                self._enter_error()

    @property
    def deadline(self):
        """When :meth:`progress` wants to be called at the latest, or None."""
        times = [part.deadline for part in (self.sender, self.receiver) if part is not None]
        return min((t for t in times if t is not None), default=None)

    def _carry_out(self, actions):
        while actions:
            action = actions.popleft()
            if isinstance(action, LinkDoorbell):
                self.context.doorbell(
                    "link_doorbell",
                    abi.LINK_DOORBELL,
                    qpn=self.qp_num,
                    generation=self.generation,
                    linked=action.linked & 0xFFFF_FFFF,
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
            self.scq.push(WC(request.wr_id, status, _OPCODE[request.cookie], self.qp_num, byte_len=request.length))

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

    # ------------------------------------------------------------------------------------- endings

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

    def _reset(self):
        if self._on_card:
            self.context.drain_transmit(self)
            self.context.commands.call(abi.CommandOpcode.QP_DESTROY, qpn=self.qp_num)
            self._on_card = False
            self.context.remove_qp(self)
            self.receiver.close()
        self.sender = self.receiver = None
        self._recv.clear()
        self._flushed = False
        self.attr.qp_state = QPState.RESET
        self.generation = self.context.next_generation(self.qp_num)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Destroy the QP: when this returns nothing of it is in flight and its blocks are free."""
        if self.closed:
            return
        self._reset()
        self.closed = True
        self.pd.children.discard(self)
        self.context.free_qpn(self.qp_num)


_LOCAL_PROTECTION = frozenset(
    {abi.Reason.BAD_KEY, abi.Reason.OUT_OF_RANGE, abi.Reason.NO_PERMISSION, abi.Reason.WRONG_PD}
)
