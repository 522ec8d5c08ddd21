"""Queue pairs."""

from dataclasses import replace

from weft.hdl import abi, wire

from ..engine.qp_engine import QpEngine
from ..protocol.path import Path
from ..protocol.timer import ack_timeout_ns
from ..queue.command import CommandTimeout
from ..queue.remembered import RememberedCommand
from ..receive.receiver import Receiver
from ..send.sender import Sender
from ..terms.checks import unsigned
from ..terms.enums import MTU, AccessFlag, QPAttrMask, QPState, WCStatus
from ..terms.errors import InvalidValue, QueueFull
from .qp_attr import QPAttr, QPCap, QPConnection, QPInitAttr
from .requests import check_recv, send_request

__all__ = ["QP", "QPAttr", "QPCap", "QPConnection", "QPInitAttr"]


class QP:
    """A reliable connection.

    Parameters
    ----------
    pd : PD
    init_attr : QPInitAttr
    psn : int or None
        First PSN sent in the first life; random by default, as in every other life.

    Attributes
    ----------
    qp_num : int
        Of this life: another one after each reset.
    engine : QpEngine
        What moves it: a new one for each life from RESET to RESET.
    """

    def __init__(self, pd, init_attr, *, psn=None):
        pd.check_open()
        init_attr.check(pd.context)
        if psn is not None:
            unsigned("psn", psn, wire.PSN_BITS)
        self.pd, self.context = pd, pd.context
        self.cap = replace(init_attr.cap)
        self.init_attr = replace(init_attr, cap=self.cap)
        self.scq, self.rcq = init_attr.scq, init_attr.rcq
        self.attr = QPAttr()
        self._begin_life(self.context.qps.new_number(), psn)
        self._commands = RememberedCommand(self.context.commands)
        self.closed = False
        for users in (pd.qps, self.scq.qps, self.rcq.qps):
            users[self] = None

    def _begin_life(self, qp_num, psn=None):
        self.qp_num = qp_num
        self.engine = QpEngine(self.context.engine, qp_num, self.scq, self.rcq)
        self.attr.sq_psn = self.context.config.random.randrange(1 << wire.PSN_BITS) if psn is None else psn
        self.attr.qp_state = QPState.RESET

    # ------------------------------------------------------------------------------------- states

    @property
    def qp_state(self):
        return QPState.ERR if self.engine.in_error else self.attr.qp_state

    @property
    def generation(self):
        """What tells this life from others between card and driver."""
        return self.engine.generation

    @property
    def index(self):
        """Place in the card's table."""
        return self.engine.index

    @property
    def sender(self):
        """The :class:`Sender`, from RTS on."""
        return self.engine.sender

    @property
    def receiver(self):
        """The :class:`Receiver`, from RTR on."""
        return self.engine.receiver

    @property
    def connection(self):
        """What the peer needs."""
        return QPConnection(self.qp_num, self.attr.sq_psn, self.context.mac, self.context.ip)

    def _check(self, attr=None):
        """Raise ValueError if the QP can change no more, or to attributes that are impossible."""
        if self.closed:
            raise InvalidValue(f"QP {self.qp_num} is closed")
        if attr is not None:
            attr.check()

    def to_init(self, attr=None):
        """RESET to INIT."""
        self._check(attr)
        if self.scq.overrun or self.rcq.overrun:
            raise InvalidValue(f"a CQ of QP {self.qp_num} overran")
        if self.qp_state is not QPState.RESET:
            raise InvalidValue(f"QP {self.qp_num} is {self.qp_state.name}, not RESET")
        if attr is not None:
            self.attr.qp_access_flags = AccessFlag(attr.qp_access_flags)
        self.attr.qp_state = QPState.INIT

    def to_rtr(self, attr):
        """INIT to RTR: ``attr`` names the peer.

        Raises
        ------
        ValueError, CommandError, CommandTimeout, MemoryError
            Nothing happened then; if the card did not answer, only closing is possible.
        """
        self._check(attr)
        if self.qp_state is not QPState.INIT:
            raise InvalidValue(f"QP {self.qp_num} is {self.qp_state.name}, not INIT")
        if self._commands.pending is not None:
            raise InvalidValue(f"the card never answered for QP {self.qp_num}; it can only be closed")
        for name in ("path_mtu", "rq_psn", "dest_qp_num", "dest_mac", "dest_ip", "min_rnr_timer", "outstanding_log2"):
            setattr(self.attr, name, getattr(attr, name))
        receiver = Receiver(
            qpn=self.index, generation=self.generation, psn=self.attr.rq_psn, pool=self.context.knitting,
            waiting_runs_max=self.context.config.waiting_runs_max, rnr_timer=self.attr.min_rnr_timer,
        )
        try:
            self._commands.call(
                abi.CommandOpcode.QP_CREATE,
                qpn=self.qp_num,
                pd=self.pd.handle,
                psn=self.attr.rq_psn,
                psn_guard=wire.PSN_OUTSTANDING_LOG2 - self.attr.outstanding_log2,
                ip=self.attr.dest_ip,
                address=receiver.holes.head_block * abi.BLOCK_BYTES,
                access=self.attr.qp_access_flags & 0xF,
                qp_state=abi.QpState.RTS,
            )
        except CommandTimeout:
            self.engine.start_receiving(self._path, receiver)    # it may become true
            raise
        except Exception:
            receiver.close()
            raise
        self.engine.start_receiving(self._path, receiver)
        self.attr.qp_state = QPState.RTR

    @property
    def _path(self):
        attr = self.attr
        return Path(attr.path_mtu, attr.dest_qp_num, attr.dest_mac, attr.dest_ip)

    def to_rts(self, attr=None):
        """RTR to RTS."""
        self._check(attr)
        if self.qp_state is not QPState.RTR:
            raise InvalidValue(f"QP {self.qp_num} is {self.qp_state.name}, not RTR")
        if attr is not None:
            for name in ("timeout", "retry_cnt", "rnr_retry", "probe_timeout_ns"):
                setattr(self.attr, name, getattr(attr, name))
            if attr.sq_psn is not None:
                self.attr.sq_psn = attr.sq_psn
        probe_ns = self.attr.probe_timeout_ns or self.context.config.probe_timeout_ns
        timeout_ns = ack_timeout_ns(self.attr.timeout)
        self.engine.start_sending(Sender(
            psn=self.attr.sq_psn,
            pmtu=wire.PMTUS[self.attr.path_mtu],
            probe_ns=probe_ns,
            timeout_ns=timeout_ns and max(timeout_ns, probe_ns),
            retry_cnt=self.attr.retry_cnt,
            rnr_retry=self.attr.rnr_retry,
            chunk_bytes=self.context.config.chunk_bytes,
            max_outstanding=(1 << self.attr.outstanding_log2) - 1,
        ))
        self.attr.qp_state = QPState.RTS

    def modify(self, attr, mask):
        """As ibv_modify_qp, for the state transitions and attributes that exist.

        When this returns, nothing is written into memory any more that the new state or access forbids.

        Raises
        ------
        ValueError, CommandError, CommandTimeout, MemoryError
        """
        mask = QPAttrMask(mask)
        self._check(attr)
        if not mask & QPAttrMask.STATE:
            if mask & QPAttrMask.ACCESS_FLAGS:
                self._set_access(AccessFlag(attr.qp_access_flags))
            return
        steps = {QPState.INIT: self.to_init, QPState.RTR: self.to_rtr, QPState.RTS: self.to_rts}
        if attr.qp_state is QPState.ERR:
            self.engine.fail(WCStatus.WR_FLUSH_ERR)
            if self.engine.told_card is not None:
                self.context.commands.finish(self.engine.told_card)
        elif attr.qp_state is QPState.RESET:
            self.reset()
        elif attr.qp_state in steps:
            steps[attr.qp_state](attr)
        else:
            raise InvalidValue(f"no transition to {attr.qp_state.name}")

    def _set_access(self, access):
        if self.engine.on_card and not self.engine.in_error:
            self._commands.call(abi.CommandOpcode.QP_MODIFY, qpn=self.qp_num, qp_state=abi.QpState.RTS,
                                access=access & 0xF)
        self.attr.qp_access_flags = access

    def query(self):
        """(QPAttr, QPInitAttr) as they are now; changing them changes nothing."""
        return replace(self.attr, qp_state=self.qp_state), replace(self.init_attr, cap=replace(self.cap))

    def connect(self, peer, *, path_mtu=MTU.MTU_1024, **attributes):
        """RESET to RTS with the peer's :class:`QPConnection`."""
        attr = QPAttr(
            path_mtu=path_mtu,
            rq_psn=peer.psn,
            dest_qp_num=peer.qpn,
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
        ValueError, TypeError
            If the QP is not in RTS or ERR, or the request is impossible; nothing is queued then.
        BufferError
            If ``max_send_wr`` requests are outstanding.
        """
        if self.sender is None:
            raise InvalidValue(f"QP {self.qp_num} is {self.qp_state.name}; it cannot send")
        request = send_request(wr, self.cap, signal_all=self.init_attr.sq_sig_all)
        if self.sender.outstanding >= self.cap.max_send_wr:
            raise QueueFull(f"{self.cap.max_send_wr} send requests are outstanding")
        self.engine.post_send(request)

    def post_recv(self, wr):
        """Queue a receive work request: each RDMA WRITE WITH IMMEDIATE of the peer takes one.

        Raises
        ------
        ValueError, TypeError
            If the QP is in RESET, or the request is impossible.
        BufferError
            If ``max_recv_wr`` requests are outstanding.
        """
        if self.qp_state is QPState.RESET:
            raise InvalidValue(f"QP {self.qp_num} is RESET; it cannot receive")
        check_recv(wr, self.cap)
        if self.engine.receives >= self.cap.max_recv_wr:
            raise QueueFull(f"{self.cap.max_recv_wr} receive requests are outstanding")
        self.engine.post_recv(wr)

    # ------------------------------------------------------------------------------------- endings

    def reset(self):
        """Any state to RESET, with another number and PSN; nothing that was posted is completed any more.

        Raises
        ------
        CommandError, CommandTimeout, TimeoutError
            If the card does not confirm it. Nothing is freed then, and the call may be repeated.
        """
        self._check()
        if self.engine.on_card:
            self.context.engine.drain_transmit(self.engine)
            if self._still_on_card():
                self._commands.call(abi.CommandOpcode.QP_DESTROY, qpn=self.qp_num)
        self._commands.pending = None
        self.engine.stop()
        self._begin_life(self.context.qps.next_number(self.qp_num))

    def _still_on_card(self):
        settled = self._commands.settle()
        if settled is None:
            return True
        opcode, done = settled
        return opcode is abi.CommandOpcode.QP_MODIFY or done == (opcode is abi.CommandOpcode.QP_CREATE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Destroy the QP: when this returns nothing of it is in flight and its blocks are free."""
        if self.closed:
            return
        self.reset()
        self.closed = True
        for users in (self.pd.qps, self.scq.qps, self.rcq.qps):
            users.pop(self, None)
        self.context.qps.free_number(self.qp_num)
