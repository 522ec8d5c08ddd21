"""Attributes of a queue pair, and the connection data for its peer."""

import copy
from dataclasses import dataclass, field

from weft.hdl.contract import wire

from ..operation.mailbox import SLOTS
from ..send.choice import check_algorithm
from ..terms.checks import between, instance, member, unsigned
from ..terms.enums import MTU, AccessFlag, MigState, QPState
from ..terms.enums import QPAttrMask as Mask
from ..terms.errors import NotSupported
from .addr import AHAttr
from .qp_init_attr import QPCap

PORTS, GIDS, PKEYS = 1, 1, 1
RD_ATOMIC_MAX = SLOTS
_QP_ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC

# Bit of the mask -> attribute and its largest value, for the attributes that are plain numbers.
_NUMBERS = {
    Mask.TIMEOUT: ("timeout", 31), Mask.RETRY_CNT: ("retry_cnt", 7), Mask.RNR_RETRY: ("rnr_retry", 7),
    Mask.MIN_RNR_TIMER: ("min_rnr_timer", 31), Mask.RQ_PSN: ("rq_psn", (1 << wire.PSN_BITS) - 1),
    Mask.SQ_PSN: ("sq_psn", (1 << wire.PSN_BITS) - 1), Mask.DEST_QPN: ("dest_qp_num", (1 << wire.QPN_BITS) - 1),
    Mask.MAX_QP_RD_ATOMIC: ("max_rd_atomic", RD_ATOMIC_MAX),
    Mask.MAX_DEST_RD_ATOMIC: ("max_dest_rd_atomic", RD_ATOMIC_MAX),
    Mask.PKEY_INDEX: ("pkey_index", PKEYS - 1), Mask.EN_SQD_ASYNC_NOTIFY: ("en_sqd_async_notify", 1),
    Mask.QKEY: ("qkey", (1 << 32) - 1)}
_OTHERS = {
    Mask.ACCESS_FLAGS: "qp_access_flags", Mask.PORT: "port_num", Mask.AV: "ah_attr", Mask.PATH_MTU: "path_mtu",
    Mask.PATH_MIG_STATE: "path_mig_state"}
_ABSENT = {
    Mask.ALT_PATH: "there is no alternative path", Mask.RATE_LIMIT: "the card has no rate limit",
    Mask.CAP: "the capacities of a QP do not change"}


@dataclass(frozen=True)
class QPConnection:
    """Connection data of a QP for its peer, exchanged out of band: QP number, first PSN, GID of the card."""

    qpn: int
    psn: int
    gid: str


@dataclass
class QPAttr:
    """Attributes of a QP (ibv_qp_attr), with units and defaults of the verbs.

    ``timeout`` is 4.096 µs · 2^timeout (14 is 67 ms); 0 disables it. The RNR timer has the steps of IBTA table 46: 4 is
    40 µs.

    Attributes ``probe_timeout_ns``, ``outstanding_log2``, ``standard`` and ``congestion`` are specific to this card,
    and no mask names them. ``outstanding_log2`` takes effect at RTR, the others at RTS.

    ``probe_timeout_ns`` is the idle time before the first tail probe; 0 selects the value of the context. Each end has
    fewer than 2^``outstanding_log2`` packets unacknowledged; the largest value is 23. As with ``path_mtu``, both ends
    must use the same value: the card drops packets that are further ahead. With ``standard`` the peer is any RoCEv2
    device instead of a Weft card. Only writes are supported then, and after a loss all packets from the lost one on are
    sent again (:class:`~weft.driver.send.standard_sender.StandardSender`). ``congestion`` is the congestion control;
    None selects that of the context.
    """

    qp_state: QPState = QPState.INIT
    cur_qp_state: QPState = QPState.RESET
    port_num: int = 1
    path_mtu: MTU = MTU.MTU_1024
    path_mig_state: MigState = field(default=MigState.MIGRATED, kw_only=True)
    qkey: int = field(default=0, kw_only=True)
    rq_psn: int = field(default=0, kw_only=True)
    sq_psn: int = field(default=0, kw_only=True)
    dest_qp_num: int = field(default=0, kw_only=True)
    qp_access_flags: AccessFlag = field(default=AccessFlag(0), kw_only=True)
    cap: QPCap = field(default_factory=lambda: QPCap(0, 0, 0, 0, 0), kw_only=True)
    ah_attr: AHAttr = field(default_factory=AHAttr, kw_only=True)
    alt_ah_attr: AHAttr = field(default_factory=AHAttr, kw_only=True)
    pkey_index: int = field(default=0, kw_only=True)
    alt_pkey_index: int = field(default=0, kw_only=True)
    en_sqd_async_notify: int = field(default=0, kw_only=True)
    sq_draining: int = field(default=0, kw_only=True)
    max_rd_atomic: int = field(default=0, kw_only=True)
    max_dest_rd_atomic: int = field(default=0, kw_only=True)
    min_rnr_timer: int = field(default=0, kw_only=True)
    timeout: int = field(default=0, kw_only=True)
    retry_cnt: int = field(default=0, kw_only=True)
    rnr_retry: int = field(default=0, kw_only=True)
    alt_port_num: int = field(default=0, kw_only=True)
    alt_timeout: int = field(default=0, kw_only=True)
    rate_limit: int = field(default=0, kw_only=True)
    probe_timeout_ns: int = field(default=0, kw_only=True)
    standard: bool = field(default=False, kw_only=True)
    outstanding_log2: int = field(default=wire.PSN_OUTSTANDING_DEFAULT_LOG2, kw_only=True)
    congestion: str | None = field(default=None, kw_only=True)

    def check(self, mask: int) -> None:
        """Raise InvalidValue, NotSupported or TypeError if an attribute that ``mask`` names has an invalid value."""
        for bit, reason in _ABSENT.items():
            if bit & mask:
                raise NotSupported(f"{bit.name}: {reason}")
        for bit, (name, most) in _NUMBERS.items():
            if bit & mask:
                between(name, getattr(self, name), 0, most)
        for bit, name, kind in ((Mask.STATE, "qp_state", QPState), (Mask.CUR_STATE, "cur_qp_state", QPState),
                                (Mask.PATH_MTU, "path_mtu", MTU), (Mask.PATH_MIG_STATE, "path_mig_state", MigState)):
            if bit & mask:
                member(name, getattr(self, name), kind)
        if mask & Mask.ACCESS_FLAGS:
            between("qp_access_flags", self.qp_access_flags, 0, int(_QP_ACCESS))
        if mask & Mask.PORT:
            between("port_num", self.port_num, 1, PORTS)
        if mask & Mask.PATH_MIG_STATE and self.path_mig_state != MigState.MIGRATED:
            raise NotSupported("paths do not migrate here; path_mig_state is always MIGRATED")
        if mask & Mask.AV:
            instance("ah_attr", self.ah_attr, AHAttr)
            self.ah_attr.check(GIDS)
        unsigned("probe_timeout_ns", self.probe_timeout_ns, 62)
        if self.congestion is not None:
            check_algorithm(self.congestion)
        between("outstanding_log2", self.outstanding_log2, 1, wire.PSN_OUTSTANDING_LOG2)

    def take(self, other: "QPAttr", mask: int, *more: str) -> None:
        """Copy the attributes that ``mask`` names, and the attributes ``more``, from ``other``."""
        named = [name for bit, (name, _) in _NUMBERS.items() if bit & mask]
        named += [name for bit, name in _OTHERS.items() if bit & mask]
        for name in (*named, *more):
            setattr(self, name, copy.deepcopy(getattr(other, name)))
