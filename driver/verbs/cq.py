"""Completion queues and completion channels."""

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..terms.checks import between, instance, unsigned
from ..terms.closing import Closing
from ..terms.enums import EventType, WCStatus
from ..terms.errors import InvalidValue, PyverbsRDMAError, PyverbsUserError, QueueOverrun
from ..terms.wc import WC
from .events import AsyncEvent
from .locking import locked, made_locked

if TYPE_CHECKING:
    from .context import Context
    from .qp import QP

CQE_BITS = 22
CQE_MAX = 1 << CQE_BITS
COMP_VECTORS = 1


def check_creator(made: object, context: "Context", table: str = "cqs") -> None:
    """Raise PyverbsUserError if ``context`` is not a context, or InvalidValue if it is closed.

    A context has the attribute ``table``, in which objects of the class of ``made`` are registered.
    """
    if not hasattr(context, table):
        raise PyverbsUserError(f"Cannot create {type(made).__name__} from {type(context)}")
    context.check_open()


class CompChannel(Closing):
    """Completion channel: CQs report completions here, with one event per :meth:`CQ.req_notify`.

    Attributes
    ----------
    cqs : dict
        CQs that report here, as keys.
    events : deque of CQ
    """

    @made_locked
    def __init__(self, context: "Context") -> None:
        check_creator(self, context, "channels")
        self.context = context
        self.events: collections.deque[CQ] = collections.deque()
        self.cqs: dict[CQ, None] = {}
        self.closed = False
        context.channels[self] = None

    @locked
    def get_cq_event(self, expected_cq: "CQ | None" = None, *, timeout_ns: int | None = None) -> "CQ":
        """Wait for an event and return its CQ.

        Raises
        ------
        TimedOut
        InvalidValue
            If the channel is closed, before or during the call.
        PyverbsRDMAError
            If the event is of another CQ than ``expected_cq``. The event is consumed.
        """
        self._check()
        self.context.run_until(lambda: self.events or self.closed, timeout_ns)
        self._check()
        cq = self.events.popleft()
        cq.unacknowledged += 1
        if expected_cq is not None and cq is not expected_cq:
            raise PyverbsRDMAError("Received event on an unexpected CQ")
        return cq

    def _check(self) -> None:
        if self.closed:
            raise InvalidValue("the completion channel is closed")

    @locked
    def close(self) -> None:
        """Destroy the channel, after the CQs that report to it; threads that wait for an event get an exception."""
        for cq in list(self.cqs):
            cq.close()
        self.closed = True
        self.events.clear()
        self.context.channels.pop(self, None)


class CQ(Closing):
    """Completion queue.

    Parameters
    ----------
    context : Context
    cqe : int
        Capacity in completions. A completion that does not fit overruns the queue permanently: its QPs go into error,
        the context gets an event, the queued completions can be polled, and further polling raises.
    cq_context : object
        Any object of the application.
    channel : CompChannel or None
    comp_vector : int
        0, the only vector.

    Attributes
    ----------
    qps : dict
        QPs that use the queue, as keys.
    overrun : bool
    lost : int
        Completions that did not fit.
    unacknowledged : int
        Events that were taken and not acknowledged.
    """

    @made_locked
    def __init__(self, context: "Context", cqe: int, cq_context: object = None, channel: CompChannel | None = None,
                 comp_vector: int = 0) -> None:
        check_creator(self, context)
        if channel is not None:
            instance("channel", channel, CompChannel)
        if channel is not None and channel.context is not context:
            raise InvalidValue("the completion channel is of another context")
        self.context, self.cq_context, self.comp_channel = context, cq_context, channel
        self.cqe = self._size(cqe)
        between("comp_vector", comp_vector, 0, COMP_VECTORS - 1)
        self._queue: collections.deque[WC] = collections.deque()
        self._notify = self._solicited_only = False
        self.overrun = self.closed = False
        self.lost = self.unacknowledged = 0
        self.qps: dict[QP, None] = {}
        context.cqs[self] = None
        if channel is not None:
            channel.cqs[self] = None

    @staticmethod
    def _size(cqe: float) -> int:
        return between("cqe", int(cqe) if isinstance(cqe, float) and cqe.is_integer() else cqe, 1, CQE_MAX)

    @property
    def channel(self) -> CompChannel | None:
        return self.comp_channel

    def push(self, wc: WC, solicited: bool = False) -> None:
        """Add a completion of a QP; ``solicited`` if the peer requested an event, as errors always do."""
        if self.overrun or len(self._queue) >= self.cqe:
            self.lost += 1
            self._overrun()
            return
        self._queue.append(wc)
        if self._notify and (solicited or not self._solicited_only or wc.status is not WCStatus.SUCCESS):
            self._signal()

    def push_all(self, wcs: Sequence[WC]) -> None:
        """Add completions that request no solicited event."""
        if self._notify or self.overrun or len(self._queue) + len(wcs) > self.cqe:
            for wc in wcs:
                self.push(wc)
        else:
            self._queue.extend(wcs)

    def _overrun(self) -> None:
        if self.overrun:
            return
        self.overrun = True
        self.context.async_events.append(AsyncEvent(EventType.CQ_ERR, self))
        self._signal()
        for qp in list(self.qps):
            qp.engine.fail(WCStatus.WR_FLUSH_ERR)

    def _signal(self) -> None:
        self._notify = False
        if self.comp_channel is not None:
            self.comp_channel.events.append(self)

    @locked
    def poll(self, num_entries: int = 1) -> tuple[int, list[WC]]:
        """Return ``(count, completions)`` without waiting, after a round of progress.

        Raises
        ------
        InvalidValue
            If the queue is closed, or ``num_entries`` is negative.
        QueueOverrun
            If the queue overran and is empty.
        """
        self._check_open()
        self.context.progress()
        return self.take(num_entries)

    def take(self, num_entries: int) -> tuple[int, list[WC]]:
        """Return ``(count, completions)`` of the queued completions, without a round of progress.

        Raises like :meth:`poll`.
        """
        if self._queue or self.closed or self.overrun or not isinstance(num_entries, int) or num_entries < 0:
            return self._take(num_entries)
        return 0, []

    @locked
    def _take(self, num_entries: int) -> tuple[int, list[WC]]:
        if not isinstance(num_entries, int) or num_entries < 0:
            unsigned("num_entries", num_entries, CQE_BITS)
        if not self._queue:
            self._check_open()
            if self.overrun:
                raise QueueOverrun(f"CQ overrun: {self.lost} completions beyond {self.cqe} are lost")
        queue = self._queue
        if len(queue) <= num_entries:
            wcs = list(queue)
            queue.clear()
        else:
            wcs = [queue.popleft() for _ in range(num_entries)]
        return len(wcs), wcs

    def forget(self, qp_num: int) -> None:
        """Remove the completions of a QP that is reset."""
        self._queue = collections.deque(wc for wc in self._queue if wc.qp_num != qp_num)

    @locked
    def wait(self, num_entries: int = 1, timeout_ns: int | None = None) -> list[WC]:
        """Wait for the first completion and return up to ``num_entries``.

        Raises
        ------
        TimedOut, QueueOverrun
        InvalidValue
            If the queue is closed, before or during the call.
        """
        self.context.run_until(lambda: self._queue or self.overrun or self.closed, timeout_ns)
        return self.take(num_entries)[1]

    @locked
    def req_notify(self, solicited_only: bool = False) -> None:
        """Request an event on the channel for the next completion.

        With ``solicited_only``, only an error or a completion for which the peer requested an event causes it. A
        pending request for the next completion of any kind stays in force.
        """
        self._check_open()
        self._solicited_only = bool(solicited_only) and (self._solicited_only or not self._notify)
        self._notify = True

    @locked
    def ack_events(self, num_events: int) -> None:
        """Acknowledge ``num_events`` events that were taken from the channel.

        Raises
        ------
        InvalidValue
            If fewer events are unacknowledged.
        """
        self.unacknowledged -= between("num_events", num_events, 0, self.unacknowledged)

    @locked
    def resize(self, cqe: int) -> None:
        """Change the capacity.

        Raises
        ------
        InvalidValue
            If the queue holds more completions, or overran.
        """
        size = self._size(cqe)
        self._check_open()
        self.context.progress()      # completions that are due are in the queue
        if self.overrun or size < len(self._queue):
            raise InvalidValue(f"Failed to resize CQ: it holds {len(self._queue)} completions"
                               + (", and overran" if self.overrun else ""))
        self.cqe = size

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidValue("the CQ is closed")

    def __len__(self) -> int:
        return len(self._queue)

    def __bool__(self) -> bool:
        return True

    @locked
    def close(self) -> None:
        """Destroy the queue, after the QPs that use it."""
        if self.closed:
            return
        for qp in list(self.qps):
            qp.close()
        self.closed = True
        self._queue.clear()
        self.context.cqs.pop(self, None)
        if self.comp_channel is not None:
            self.comp_channel.cqs.pop(self, None)
