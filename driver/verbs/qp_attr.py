"""What a QP is made of and how it is set up."""

from dataclasses import dataclass, field

from ..receive.receiver import RNR_TIMER
from ..terms.enums import MTU, AccessFlag, QPState, QPType


@dataclass
class QPCap:
    """Capacities of a QP."""

    max_send_wr: int = 128
    max_recv_wr: int = 128
    max_send_sge: int = 16
    max_recv_sge: int = 16
    max_inline_data: int = 0


@dataclass
class QPInitAttr:
    """What a QP is created with."""

    qp_type: QPType = QPType.RC
    scq: object = None
    rcq: object = None
    cap: QPCap = field(default_factory=QPCap)
    sq_sig_all: bool = False
    qp_context: object = None


@dataclass(frozen=True)
class QPConnection:
    """What the peer must know of a QP, to be handed over out of band."""

    qpn: int
    psn: int
    generation: int
    mac: int
    ip: int


@dataclass
class QPAttr:
    """Attributes of a QP.

    ``timeout`` and ``retry_cnt``, ``rnr_retry``, ``min_rnr_timer`` as in the verbs (timeout: 4.096 µs · 2^timeout,
    0 waits for ever; the RNR timer in the steps of IBTA table 46: 4 is 40 µs).
    ``probe_timeout_ns`` (0: the context's) is the silence before the first tail probe.
    """

    qp_state: QPState = QPState.RESET
    path_mtu: MTU = MTU.MTU_1024
    sq_psn: int = 0
    rq_psn: int = 0
    dest_qp_num: int = 0
    qp_access_flags: AccessFlag = AccessFlag.REMOTE_WRITE
    timeout: int = 4
    retry_cnt: int = 7
    rnr_retry: int = 7
    min_rnr_timer: int = RNR_TIMER
    dest_generation: int = 0
    dest_mac: int = 0
    dest_ip: int = 0
    probe_timeout_ns: int = 0
