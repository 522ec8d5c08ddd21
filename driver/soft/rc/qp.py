"""Software queue pair with the interface of the verbs' QP: its attributes, a requester and a responder."""

import collections
from dataclasses import dataclass, replace

from weft.hdl.contract import abi, wire

from ...protocol.source_port import FIRST_PORT, PORT_MASK, PortDraw
from ...protocol.timer import ack_timeout_ns
from ...terms.checks import member, unsigned
from ...terms.enums import MTU, AccessFlag, QPState, WCOpcode, WCStatus
from ...terms.wc import WC
from ...verbs.requests import sges_of
from .opcodes import RESPONSES, RcOpcode
from .packet import Addresses, RcPacket, build
from .request import send_request
from .requester import Requester
from .responder import Responder

_BITS = {"timeout": 5, "retry_cnt": 3, "rnr_retry": 3, "min_rnr_timer": 5, "max_rd_atomic": 8, "max_dest_rd_atomic": 8}
CNP_INTERVAL_NS = abi.REGISTER["cnp_interval_ns"].reset


@dataclass(frozen=True)
class SoftConnection:
    """Connection data of a software queue pair for its peer, exchanged out of band."""

    qpn: int
    psn: int
    mac: int
    ip: int


@dataclass(frozen=True)
class RcAttr:
    """Attributes of a connection, with the names and units of the verbs (ibv_qp_attr).

    ``timeout`` is 4.096 µs · 2^timeout; 0 disables it. An ``rnr_retry`` of 7 means no limit. ``min_rnr_timer`` is a
    code of IBTA table 46. ``max_rd_atomic`` and ``max_dest_rd_atomic`` limit the outstanding READs and atomics of this
    end and of the peer. With ``end_to_end_credits`` acknowledgements report the number of posted receives.
    With ``path_search`` an end whose packets go unanswered changes its UDP source port, and so its path.
    """

    path_mtu: MTU = MTU.MTU_1024
    qp_access_flags: AccessFlag = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC
    timeout: int = 8
    retry_cnt: int = 7
    rnr_retry: int = 7
    min_rnr_timer: int = 4
    max_rd_atomic: int = 4
    max_dest_rd_atomic: int = 4
    end_to_end_credits: bool = True
    path_search: bool = True

    def __post_init__(self):
        for name, bits in _BITS.items():
            unsigned(name, getattr(self, name), bits)
        member("path_mtu", self.path_mtu, MTU)
        member("qp_access_flags", self.qp_access_flags, AccessFlag)


class SoftQP:
    """Reliable connection.

    A packet that a switch marked is answered with a congestion notification, at most one per ``CNP_INTERVAL_NS``; those
    of the peer are only counted.

    Parameters
    ----------
    pd : PD
        PD of a :class:`~weft.driver.soft.rc.context.SoftContext`.
    init_attr : QPInitAttr
    psn : int or None
        First PSN sent; random by default.

    Attributes
    ----------
    qp_num : int
    qp_state : QPState
        INIT, then RTS from :meth:`connect` on, and ERR after an error.
    receives : deque of RecvWR
    counts : Counter
        Counters of the context.
    """

    def __init__(self, pd, init_attr, *, psn=None):
        pd.check_open()
        self.pd, self.context, self.memory, self.counts = pd, pd.context, pd.context.memory, pd.context.counts
        init_attr.check(pd.context)
        self.cap, self.scq, self.rcq = init_attr.cap, init_attr.scq, init_attr.rcq
        self._signal_all = init_attr.sq_sig_all
        self.psn = self.context.random.randrange(1 << wire.PSN_BITS) if psn is None else unsigned("psn", psn, 24)
        self.qp_num = self.context.add_qp(self)
        self.qp_state = QPState.INIT
        self.receives = collections.deque()
        self.attr = self.peer = self.requester = self.responder = None
        self.closed = False
        self._notified, self._owes_cnp = -CNP_INTERVAL_NS, False
        for users in (pd.qps, self.scq.qps, self.rcq.qps):
            users[self] = None

    @property
    def connection(self):
        """:class:`SoftConnection` for the peer."""
        return SoftConnection(self.qp_num, self.psn, self.context.mac, self.context.ip)

    def connect(self, peer, attr=None):
        """Go from INIT to RTS.

        Parameters
        ----------
        peer : SoftConnection
        attr : RcAttr or None
        """
        if self.qp_state is not QPState.INIT:
            raise ValueError(f"QP {self.qp_num} is {self.qp_state.name}, not INIT")
        self.attr, self.peer = attr or RcAttr(), peer
        self.pmtu = wire.PMTUS[self.attr.path_mtu]
        self.timeout_ns = ack_timeout_ns(self.attr.timeout)
        self._to = Addresses(peer.mac, peer.ip, self.context.mac, self.context.ip,
                             FIRST_PORT | self.qp_num & PORT_MASK)
        self._ports = PortDraw(f"{self.qp_num}/{peer.qpn}")
        self.requester, self.responder = Requester(self, self.psn), Responder(self, peer.psn)
        self.qp_state = QPState.RTS

    # --------------------------------------------------------------------------------------- work

    def post_send(self, wr):
        """Queue a send work request.

        Raises
        ------
        ValueError, TypeError
            If the QP was never connected, or the request is invalid.
        BufferError
            If ``max_send_wr`` requests are outstanding.
        """
        if self.requester is None:
            raise ValueError(f"QP {self.qp_num} is {self.qp_state.name}; it cannot send")
        request = send_request(wr, self.cap, signal_all=self._signal_all)
        if len(self.requester.requests) >= self.cap.max_send_wr:
            raise BufferError(f"{self.cap.max_send_wr} send requests are outstanding")
        self.requester.post(request)
        if self.qp_state is QPState.ERR:
            self.requester.flush()

    def post_recv(self, wr):
        """Queue a receive work request: each SEND and each WRITE with immediate of the peer consumes one.

        Raises
        ------
        ValueError, TypeError
            If the request is invalid.
        BufferError
            If ``max_recv_wr`` requests are outstanding.
        """
        sges_of(wr, self.cap.max_recv_sge)
        unsigned("wr_id", wr.wr_id, 64)
        if len(self.receives) >= self.cap.max_recv_wr:
            raise BufferError(f"{self.cap.max_recv_wr} receive requests are outstanding")
        self.receives.append(wr)
        if self.qp_state is QPState.ERR:
            self._flush_receives()
        elif self.qp_state is QPState.RTS and len(self.receives) == 1 and self.attr.end_to_end_credits:
            self.responder.announce_credits()

    # ------------------------------------------------------------------------------ for the context

    def on_packet(self, packet, now):
        """Process a packet of the peer."""
        if self.qp_state is not QPState.RTS:
            self.counts["not_connected"] += 1
        elif packet.src_ip != self.peer.ip:
            self.counts["foreign_sender"] += 1
        elif packet.opcode is RcOpcode.CNP:
            self.counts["cnps_received"] += 1
        else:
            if packet.ce and now - self._notified >= CNP_INTERVAL_NS:
                self._notified, self._owes_cnp = now, True
            if packet.opcode in RESPONSES:
                self.requester.on_response(packet, now)
            else:
                self.responder.on_request(packet)

    def process(self, now):
        """Do everything that is due; return the next deadline, or None."""
        if self.qp_state is not QPState.RTS:
            return None
        self.requester.check_time(now)
        return self.requester.deadline

    def next_frame(self, now):
        """Return the next frame to send, or None; responses come first."""
        packet = None
        if self._owes_cnp:
            self._owes_cnp, packet = False, RcPacket(RcOpcode.CNP, self.peer.qpn, 0)
            self.counts["cnps_sent"] += 1
        elif self.responder:
            packet = self.responder.replies.next_packet()
        if packet is None and self.qp_state is QPState.RTS:
            packet = self.requester.next_packet(now)
        if packet is None:
            return None
        packet.dest_qp = self.peer.qpn
        return build(packet, self._to)

    def change_path(self):
        """Take another UDP source port, drawn from a generator of this QP, so that routers may choose another path."""
        if self.attr.path_search:
            self._to = replace(self._to, sport=self._ports.draw())
            self.counts["path_changes"] += 1

    def remote_view(self, packet, length, access, offset=0):
        """Return the memory that a RETH or AtomicETH names, as a memoryview; None if the peer may not access it."""
        if access & ~self.attr.qp_access_flags:
            return None
        return self.memory.view(self.pd, packet.rkey, packet.va + offset, length, access)

    # ------------------------------------------------------------------------------------ closing

    @property
    def engine(self):
        """Object on which a CQ that overran calls ``fail``."""
        return self

    def fail(self, _status=None):
        """Go to ERR and flush all requests. Queued replies are still sent."""
        if self.qp_state is QPState.ERR:
            return
        self.qp_state = QPState.ERR
        if self.requester is not None:
            self.requester.flush()
            self.responder.flush()
        self._flush_receives()

    def _flush_receives(self):
        while self.receives:
            self.rcq.push(WC(self.receives.popleft().wr_id, WCStatus.WR_FLUSH_ERR, WCOpcode.RECV,
                             qp_num=self.qp_num))

    def close(self):
        """Destroy the QP; outstanding requests do not complete."""
        if self.closed:
            return
        self.closed, self.qp_state = True, QPState.RESET
        self.receives.clear()
        self.context.remove_qp(self)
        for users in (self.pd.qps, self.scq.qps, self.rcq.qps):
            users.pop(self, None)
