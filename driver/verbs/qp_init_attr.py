"""Attributes with which a queue pair is created."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from ..operation.mailbox import STAGE_BYTES
from ..terms.checks import Range, check_ranges, instance, member, unsigned
from ..terms.enums import QPType
from ..terms.errors import InvalidValue, NotSupported
from ..terms.init_enums import QPInitAttrMask
from .pd import PD

if TYPE_CHECKING:
    from .context import Context
    from .cq import CQ
    from .srq import SRQ

QP_WR_MAX = 1 << 20
SGE_MAX = 16
INLINE_MAX = STAGE_BYTES
MASK_BITS = 32


@dataclass
class QPCap:
    """Capacities of a QP."""

    max_send_wr: Annotated[int, Range(0, QP_WR_MAX)] = 1
    max_recv_wr: Annotated[int, Range(0, QP_WR_MAX)] = 10
    max_send_sge: Annotated[int, Range(0, SGE_MAX)] = 1
    max_recv_sge: Annotated[int, Range(0, SGE_MAX)] = 1
    max_inline_data: Annotated[int, Range(0, INLINE_MAX)] = 0

    def check(self) -> None:
        """Raise InvalidValue or TypeError if a capacity has an invalid value."""
        check_ranges(self)


def _of(holder: str | None, name: str) -> property:
    """Return a property that is an alias of an attribute, or of an attribute of the attribute ``holder``."""
    def get(attr: "QPInitAttr") -> object:
        return getattr(getattr(attr, holder) if holder else attr, name)

    def put(attr: "QPInitAttr", value: object) -> None:
        setattr(getattr(attr, holder) if holder else attr, name, value)

    return property(get, put)


@dataclass
class QPInitAttr:
    """Creation attributes of a QP (ibv_qp_init_attr).

    The capacities are attributes of this class as well as of ``cap``.
    """

    qp_type: QPType = QPType.UD
    qp_context: object = None
    scq: "CQ | None" = None
    rcq: "CQ | None" = None
    srq: "SRQ | None" = None
    cap: QPCap = field(default_factory=QPCap)
    sq_sig_all: int = 1

    send_cq, recv_cq = _of(None, "scq"), _of(None, "rcq")
    max_send_wr, max_recv_wr = _of("cap", "max_send_wr"), _of("cap", "max_recv_wr")
    max_send_sge, max_recv_sge = _of("cap", "max_send_sge"), _of("cap", "max_recv_sge")
    max_inline_data = _of("cap", "max_inline_data")

    def __post_init__(self) -> None:
        if self.cap is None:
            self.cap = QPCap()

    def own_cap(self) -> QPCap:
        """Return a copy of the capacities; an SRQ replaces those of receives (IBTA 1.7, 11.2.4.1)."""
        return replace(self.cap, **({} if self.srq is None else {"max_recv_wr": 0, "max_recv_sge": 0}))

    def check(self, context: "Context") -> None:
        """Raise InvalidValue, NotSupported or TypeError if these attributes cannot create a QP of ``context``."""
        instance("cap", self.cap, QPCap)
        self.own_cap().check()
        if member("qp_type", self.qp_type, QPType) not in (QPType.RC, QPType.UD):
            raise NotSupported(f"Failed to create QP: {QPType(self.qp_type).name} does not exist here, only RC and UD")
        for cq in (self.scq, self.rcq):
            if cq is None or not hasattr(cq, "poll") or cq.closed or cq.context is not context:
                raise InvalidValue("a QP needs a send CQ and a receive CQ of its context")
        srq = self.srq
        if srq is not None and (not hasattr(srq, "post_recv") or srq.closed or srq.context is not context):
            raise InvalidValue(f"srq is {srq!r}; an open SRQ of the context is needed")


@dataclass
class QPInitAttrEx(QPInitAttr):
    """Creation attributes of a QP that a context creates (ibv_qp_init_attr_ex): ``pd`` is one of them."""

    sq_sig_all: int = 0
    comp_mask: int = 0
    pd: PD | None = None
    xrcd: object = None
    create_flags: int = 0
    max_tso_header: int = 0
    source_qpn: int = 0
    hash_conf: object = None
    ind_table: object = None
    send_ops_flags: int = 0

    def check(self, context: "Context") -> None:
        super().check(context)
        for name in ("xrcd", "create_flags", "max_tso_header", "source_qpn", "hash_conf", "ind_table",
                     "send_ops_flags"):
            if getattr(self, name):
                raise NotSupported(f"{name} is {getattr(self, name)!r}, and means nothing here")
        if unsigned("comp_mask", self.comp_mask, MASK_BITS) & ~int(QPInitAttrMask.PD | QPInitAttrMask.CREATE_FLAGS):
            raise NotSupported(f"comp_mask is {self.comp_mask:#x}; only a PD and no creation flags are possible")
        if not isinstance(self.pd, PD) or self.pd.context is not context:
            raise InvalidValue("a QP needs a PD of its context")


def rc_init_attr(scq: "CQ | None", rcq: "CQ | None" = None, **options: Any) -> QPInitAttr:
    """Return the attributes that most programs need.

    They are: RC, one CQ for both directions, queues of 128 requests each, and completions only for requests that ask
    for one. ``options`` are capacities or other attributes of :class:`QPInitAttr`.
    """
    caps = {name: options.pop(name) for name in vars(QPCap()) if name in options}
    return QPInitAttr(**{"qp_type": QPType.RC, "scq": scq, "rcq": scq if rcq is None else rcq, "sq_sig_all": 0,
                         "cap": QPCap(**{"max_send_wr": 128, "max_recv_wr": 128, "max_send_sge": SGE_MAX,
                                         "max_recv_sge": SGE_MAX} | caps)} | options)
