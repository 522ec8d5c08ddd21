"""What a QP is made of and how it is set up."""

from dataclasses import dataclass, field

from weft.hdl import wire

from ..receive.receiver import RNR_TIMER
from ..terms.checks import between, member, unsigned
from ..terms.enums import MTU, AccessFlag, QPState, QPType
from ..terms.errors import InvalidValue, NotSupported

_BITS = {"sq_psn": wire.PSN_BITS, "rq_psn": wire.PSN_BITS, "dest_qp_num": wire.QPN_BITS, "dest_mac": 48,
         "dest_ip": 32, "timeout": 5, "retry_cnt": 3, "rnr_retry": 3, "min_rnr_timer": 5, "probe_timeout_ns": 62}


@dataclass
class QPCap:
    """Capacities of a QP."""

    max_send_wr: int = 128
    max_recv_wr: int = 128
    max_send_sge: int = 16
    max_recv_sge: int = 16
    max_inline_data: int = 0

    def check(self):
        """Raise ValueError or TypeError if a capacity is impossible."""
        for name, low in (("max_send_wr", 1), ("max_recv_wr", 0), ("max_send_sge", 1), ("max_recv_sge", 0)):
            between(name, getattr(self, name), low, 1 << 20)
        if self.max_inline_data:
            raise NotSupported("inline data do not exist here")


@dataclass
class QPInitAttr:
    """What a QP is created with."""

    qp_type: QPType = QPType.RC
    scq: object = None
    rcq: object = None
    cap: QPCap = field(default_factory=QPCap)
    sq_sig_all: bool = False
    qp_context: object = None

    def check(self, context):
        """Raise ValueError or TypeError if no QP of ``context`` can be made of it."""
        if self.qp_type is not QPType.RC:
            raise NotSupported("only RC queue pairs exist")
        for cq in (self.scq, self.rcq):
            if cq is None or cq.closed or cq.context is not context:
                raise InvalidValue("a QP needs a send CQ and a receive CQ of its context")
        self.cap.check()


@dataclass(frozen=True)
class QPConnection:
    """What the peer must know of a QP, to be handed over out of band."""

    qpn: int
    psn: int
    mac: int
    ip: int


@dataclass
class QPAttr:
    """Attributes of a QP.

    ``timeout`` and ``retry_cnt``, ``rnr_retry``, ``min_rnr_timer`` as in the verbs (timeout: 4.096 µs · 2^timeout,
    0 waits for ever, 14 is 67 ms; the RNR timer in the steps of IBTA table 46: 4 is 40 µs).
    ``probe_timeout_ns`` (0: the context's) is the silence before the first tail probe. ``sq_psn`` None leaves the one
    that the QP chose. Both ends have less than 2^``outstanding_log2`` packets unacknowledged, at most 23: as with
    ``path_mtu``, both take the same. The card drops what is further ahead.
    """

    qp_state: QPState = QPState.RESET
    path_mtu: MTU = MTU.MTU_1024
    sq_psn: int | None = None
    rq_psn: int = 0
    dest_qp_num: int = 0
    qp_access_flags: AccessFlag = AccessFlag.REMOTE_WRITE
    timeout: int = 14
    retry_cnt: int = 7
    rnr_retry: int = 7
    min_rnr_timer: int = RNR_TIMER
    dest_mac: int = 0
    dest_ip: int = 0
    probe_timeout_ns: int = 0
    outstanding_log2: int = wire.PSN_OUTSTANDING_DEFAULT_LOG2

    def check(self):
        """Raise ValueError or TypeError if an attribute is impossible."""
        for name, bits in _BITS.items():
            if name != "sq_psn" or self.sq_psn is not None:
                unsigned(name, getattr(self, name), bits)
        between("outstanding_log2", self.outstanding_log2, 1, wire.PSN_OUTSTANDING_LOG2)
        for name, kind in (("path_mtu", MTU), ("qp_access_flags", AccessFlag), ("qp_state", QPState)):
            member(name, getattr(self, name), kind)
