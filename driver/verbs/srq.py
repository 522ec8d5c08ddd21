"""Shared receive queues."""

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from ..operation.receives import Receives
from ..terms.checks import between, instance, member, unsigned
from ..terms.closing import Closing
from ..terms.enums import EventType, SrqAttrMask
from ..terms.errors import InvalidValue, NotSupported, QueueFull
from ..terms.init_enums import SrqInitAttrMask, SrqType
from .events import AsyncEvent
from .locking import locked, made_locked
from .pd import PD
from .qp_init_attr import MASK_BITS, QP_WR_MAX, SGE_MAX
from .requests import receive_request
from .wr import RecvWR, chain, note_bad

if TYPE_CHECKING:
    from .context import Context
    from .qp import QP

_numbers = count(1)


@dataclass
class SrqAttr:
    """Attributes of an SRQ (ibv_srq_attr).

    One event is reported when fewer than ``srq_limit`` receive requests are left.
    """

    max_wr: int = 100
    max_sge: int = 1
    srq_limit: int = 0

    def check(self) -> None:
        """Raise InvalidValue or TypeError if an attribute has an invalid value."""
        between("max_wr", self.max_wr, 1, QP_WR_MAX)
        between("max_sge", self.max_sge, 1, SGE_MAX)
        between("srq_limit", self.srq_limit, 0, self.max_wr)


@dataclass
class SrqInitAttr:
    """Attributes with which a PD creates an SRQ (ibv_srq_init_attr)."""

    attr: SrqAttr = field(default_factory=SrqAttr)
    srq_context: object = None

    max_wr = property(lambda init: init.attr.max_wr)
    max_sge = property(lambda init: init.attr.max_sge)
    srq_limit = property(lambda init: init.attr.srq_limit)

    def check(self) -> None:
        self.attr.check()


@dataclass
class SrqInitAttrEx(SrqAttr):
    """Attributes with which a context creates an SRQ (ibv_srq_init_attr_ex): ``pd`` is one of them.

    Only basic SRQs exist.
    """

    comp_mask: int = field(default=0, kw_only=True)
    srq_type: SrqType = field(default=SrqType.BASIC, kw_only=True)
    pd: PD | None = field(default=None, kw_only=True)
    xrcd: object = field(default=None, kw_only=True)
    cq: object = field(default=None, kw_only=True)
    max_num_tags: int = field(default=0, kw_only=True)
    max_ops: int = field(default=0, kw_only=True)

    srq_context = None

    def check(self) -> None:
        super().check()
        if unsigned("comp_mask", self.comp_mask, MASK_BITS) & ~int(SrqInitAttrMask.TYPE | SrqInitAttrMask.PD) or any(
                (self.srq_type, self.xrcd, self.cq, self.max_num_tags, self.max_ops)):
            raise NotSupported("Failed to create SRQ: only basic ones exist, without XRC and tag matching")


class SRQ(Closing):
    """Queue of receive requests that several QPs share, consumed in the order in which their messages arrive.

    Parameters
    ----------
    creator : PD or Context
        With a context ``attr`` is an :class:`SrqInitAttrEx`, which has the PD.
    attr : SrqInitAttr or None

    Attributes
    ----------
    qps : dict
        QPs that use the queue, as keys.
    """

    @made_locked
    def __init__(self, creator: "PD | Context", attr: SrqInitAttr | SrqInitAttrEx | None = None) -> None:
        init = SrqInitAttr() if attr is None else attr
        instance("attr", init, SrqInitAttr, SrqInitAttrEx)
        pd = init.pd if isinstance(init, SrqInitAttrEx) else creator
        if not isinstance(pd, PD):
            raise InvalidValue("an SRQ is made by a PD, or by a context with an SrqInitAttrEx that names a PD")
        pd.check_open()
        init.check()
        self.pd = pd
        self.context, self.srq_context = self.pd.context, init.srq_context
        self._attr = SrqAttr(init.max_wr, init.max_sge)
        self.receives = Receives()
        self.receives.below, self.receives.limit = self._limit_reached, init.srq_limit
        self.qps: dict[QP, None] = {}
        self.closed, self._number = False, next(_numbers)
        self.pd.srqs[self] = None

    def _limit_reached(self) -> None:
        self.context.async_events.append(AsyncEvent(EventType.SRQ_LIMIT_REACHED, self))

    def _check(self) -> None:
        if self.closed:
            raise InvalidValue("the SRQ is closed")

    def get_srq_num(self) -> int:
        """Return the number of the SRQ."""
        self._check()
        return self._number

    @locked
    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Queue a receive work request, and those that follow it by ``next_wr``.

        Raises
        ------
        InvalidValue, TypeError
            If the queue is closed, or a request is invalid. This request and the following ones are not queued, and its
            fields are copied to ``bad_wr``.
        QueueFull
            If ``max_wr`` requests are queued.
        """
        self._check()
        for one in chain(wr, RecvWR):
            try:
                receive = receive_request(one, self._attr.max_sge, self.context.engine.lender.memory)
                if len(self.receives) >= self._attr.max_wr:
                    raise QueueFull(f"{self._attr.max_wr} receive requests are outstanding")
            except Exception:
                note_bad(one, bad_wr)
                raise
            self.receives.post(receive)

    @locked
    def modify(self, attr: SrqAttr | SrqInitAttr, comp_mask: int) -> None:
        """Change the attributes that ``comp_mask`` names: the capacity, and the limit below which an event is reported.

        Raises
        ------
        InvalidValue
            If more requests than the new capacity are outstanding, or the limit is larger than the capacity.
        """
        mask, new = self._wanted(attr, comp_mask)
        self._attr.max_wr = new.max_wr
        if mask & SrqAttrMask.LIMIT:
            self.receives.limit = new.srq_limit

    def _wanted(self, attr: SrqAttr | SrqInitAttr, comp_mask: SrqAttrMask | int) -> tuple[SrqAttrMask, SrqAttr]:
        """Return the mask and the attributes of a valid call of :meth:`modify`; raise InvalidValue otherwise."""
        self._check()
        instance("attr", attr, SrqAttr, SrqInitAttr)
        mask = member("comp_mask", comp_mask, SrqAttrMask)
        if int(mask) & ~int(SrqAttrMask.MAX_WR | SrqAttrMask.LIMIT):
            raise InvalidValue(f"comp_mask is {int(mask):#x}")
        new = SrqAttr(attr.max_wr if mask & SrqAttrMask.MAX_WR else self._attr.max_wr, self._attr.max_sge,
                      attr.srq_limit if mask & SrqAttrMask.LIMIT else 0)
        new.check()
        if new.max_wr < len(self.receives):
            raise InvalidValue(f"{len(self.receives)} receive requests are outstanding")
        return mask, new

    def query(self) -> SrqAttr:
        """Return the current :class:`SrqAttr`."""
        self._check()
        return SrqAttr(self._attr.max_wr, self._attr.max_sge, self.receives.limit)

    @locked
    def close(self) -> None:
        """Destroy the queue, after the QPs that use it; its requests are dropped without completions."""
        if self.closed:
            return
        for qp in list(self.qps):
            qp.close()
        self.closed = True
        self.receives.clear()
        self.pd.srqs.pop(self, None)
