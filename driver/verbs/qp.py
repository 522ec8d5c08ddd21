"""Queue pairs."""

from weft.hdl import abi, wire

from ..engine.qp_engine import QpEngine
from ..protocol.path import Path
from ..receive.receiver import Receiver
from ..send.sender import Sender
from ..terms.enums import MTU, AccessFlag, QPAttrMask, QPState, QPType, WCStatus
from .qp_attr import QPAttr, QPCap, QPConnection, QPInitAttr
from .requests import check_recv, send_request

__all__ = ["QP", "QPAttr", "QPCap", "QPConnection", "QPInitAttr"]
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
    qp_num : int
    engine : QpEngine
        What moves it: a new one for each life from RESET to RESET.
    """

    def __init__(self, pd, init_attr, *, psn=None):
        if init_attr.qp_type is not QPType.RC:
            raise ValueError("only RC queue pairs exist")
        if init_attr.scq is None or init_attr.rcq is None:
            raise ValueError("a QP needs a send CQ and a receive CQ")
        self.pd, self.context = pd, pd.context
        self.init_attr, self.cap = init_attr, init_attr.cap
        self.scq, self.rcq = init_attr.scq, init_attr.rcq
        self.qp_num, generation = self.context.qps.new_number()
        if psn is None:
            psn = self.context.config.random.randrange(1 << wire.PSN_BITS)
        self.attr = QPAttr(sq_psn=psn)
        self.engine = self._new_engine(generation)
        self.closed = False
        pd.children.add(self)

    def _new_engine(self, generation):
        return QpEngine(self.context.engine, self.qp_num, generation, self.scq, self.rcq)

    # ------------------------------------------------------------------------------------- states

    @property
    def qp_state(self):
        return QPState.ERR if self.engine.in_error else self.attr.qp_state

    @property
    def generation(self):
        """Tells this life of the QP number from others."""
        return self.engine.generation

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
        for name in ("path_mtu", "rq_psn", "dest_qp_num", "dest_generation", "dest_mac", "dest_ip",
                     "min_rnr_timer"):
            setattr(self.attr, name, getattr(attr, name))
        receiver = Receiver(
            qpn=self.qp_num, generation=self.generation, psn=self.attr.rq_psn, pool=self.context.knitting,
            waiting_runs_max=self.context.config.waiting_runs_max, rnr_timer=self.attr.min_rnr_timer,
        )
        try:
            self.context.commands.call(
                abi.CommandOpcode.QP_CREATE,
                qpn=self.qp_num,
                generation=self.generation,
                pd=self.pd.handle,
                psn=self.attr.rq_psn,
                address=receiver.holes.head_block * abi.BLOCK_BYTES,
                access=self.attr.qp_access_flags & 0xF,
                qp_state=abi.QpState.RTS,
            )
        except Exception:
            receiver.close()
            raise
        self.engine.start_receiving(
            Path(self.attr.path_mtu, self.attr.dest_qp_num, self.attr.dest_generation, self.attr.dest_mac,
                 self.attr.dest_ip), receiver)
        self.attr.qp_state = QPState.RTR

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
        self.engine.start_sending(Sender(
            psn=self.attr.sq_psn,
            pmtu=wire.PMTUS[self.attr.path_mtu],
            probe_ns=probe_ns,
            timeout_ns=timeout_ns and max(timeout_ns, probe_ns),
            retry_cnt=self.attr.retry_cnt,
            rnr_retry=self.attr.rnr_retry,
            chunk_bytes=self.context.config.chunk_bytes,
        ))
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
            self.engine.fail(WCStatus.WR_FLUSH_ERR)
        elif attr.qp_state is QPState.RESET:
            self.reset()
        elif attr.qp_state in steps:
            steps[attr.qp_state](attr)
        else:
            raise ValueError(f"no transition to {attr.qp_state.name}")

    def query(self):
        """(QPAttr, QPInitAttr)."""
        self.attr.qp_state = self.qp_state
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
        ValueError, TypeError
            If the QP is not in RTS or ERR, or the request is impossible; nothing is queued then.
        BufferError
            If ``max_send_wr`` requests are outstanding.
        """
        if self.sender is None:
            raise ValueError(f"QP {self.qp_num} is {self.qp_state.name}; it cannot send")
        request = send_request(wr, self.cap, signal_all=self.init_attr.sq_sig_all)
        if self.sender.outstanding >= self.cap.max_send_wr:
            raise BufferError(f"{self.cap.max_send_wr} send requests are outstanding")
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
            raise ValueError(f"QP {self.qp_num} is RESET; it cannot receive")
        check_recv(wr, self.cap)
        if self.engine.receives >= self.cap.max_recv_wr:
            raise BufferError(f"{self.cap.max_recv_wr} receive requests are outstanding")
        self.engine.post_recv(wr)

    # ------------------------------------------------------------------------------------- endings

    def reset(self):
        """Any state to RESET; nothing that was posted is completed any more."""
        if self.engine.on_card:
            self.context.engine.drain_transmit(self.engine)
            self.context.commands.call(abi.CommandOpcode.QP_DESTROY, qpn=self.qp_num)
        self.engine.stop()
        self.engine = self._new_engine(self.context.qps.next_generation(self.qp_num))
        self.attr.qp_state = QPState.RESET

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
        self.pd.children.discard(self)
        self.context.qps.free_number(self.qp_num)
