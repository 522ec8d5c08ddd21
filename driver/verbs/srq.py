"""Shared receive queues."""

from dataclasses import dataclass, field, replace

from ..operation.receives import Receives
from ..terms.checks import between
from ..terms.enums import EventType, SrqAttrMask
from ..terms.errors import InUse, InvalidValue, NotSupported, QueueFull
from .events import AsyncEvent
from .qp_init_attr import QP_WR_MAX, SGE_MAX
from .requests import receive_request


@dataclass
class SrqAttr:
    """Capacities of an SRQ; when fewer than ``srq_limit`` receive requests are left there is an event."""

    max_wr: int = 100
    max_sge: int = 1
    srq_limit: int = 0


@dataclass
class SrqInitAttr:
    """What an SRQ is created with."""

    attr: SrqAttr = field(default_factory=SrqAttr)
    srq_context: object = None


class SRQ:
    """Receive requests for any of several QPs, in the order in which their messages come.

    Parameters
    ----------
    creator : PD
    attr : SrqInitAttr or None

    Attributes
    ----------
    qps : dict
        The QPs that use it, as keys.
    """

    def __init__(self, creator, attr=None):
        creator.check_open()
        init = attr or SrqInitAttr()
        between("max_wr", init.attr.max_wr, 1, QP_WR_MAX)
        between("max_sge", init.attr.max_sge, 1, SGE_MAX)
        self.pd, self.context, self.srq_context = creator, creator.context, init.srq_context
        self._attr = replace(init.attr, srq_limit=0)
        self.receives = Receives()
        self.receives.below = self._limit_reached
        self.qps = {}
        self.closed = False
        creator.srqs[self] = None

    def _limit_reached(self):
        self.context.async_events.append(AsyncEvent(EventType.SRQ_LIMIT_REACHED, self))

    def post_recv(self, wr):
        """Queue a receive work request, and those that follow it by ``next_wr``.

        Raises
        ------
        InvalidValue, TypeError
            If it is closed, or a request is impossible; neither it nor those behind it are queued.
        QueueFull
            If there are ``max_wr``.
        """
        if self.closed:
            raise InvalidValue("the SRQ is closed")
        while wr is not None:
            receive = receive_request(wr, self._attr.max_sge)
            if len(self.receives) >= self._attr.max_wr:
                raise QueueFull(f"{self._attr.max_wr} receive requests are outstanding")
            self.receives.post(receive)
            wr = wr.next_wr

    def modify(self, attr, comp_mask):
        """Set ``srq_limit``; the size stays as it is."""
        if comp_mask & ~SrqAttrMask.LIMIT:
            raise NotSupported("the size of an SRQ does not change")
        if comp_mask & SrqAttrMask.LIMIT:
            self.receives.limit = between("srq_limit", attr.srq_limit, 0, self._attr.max_wr)

    def query(self):
        """:class:`SrqAttr` as it is now."""
        return replace(self._attr, srq_limit=self.receives.limit)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Destroy it, and forget what was posted; not while a QP uses it."""
        if self.closed:
            return
        if self.qps:
            raise InUse(f"the SRQ is in use by QPs {[qp.qp_num for qp in self.qps]}")
        self.closed = True
        self.receives.clear()
        self.pd.srqs.pop(self, None)
