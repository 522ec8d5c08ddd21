"""Completion queues and completion channels."""

import collections

from ..terms.checks import between, instance, unsigned
from ..terms.closing import Closing
from ..terms.enums import EventType, WCStatus
from ..terms.errors import InvalidValue, PyverbsRDMAError, PyverbsUserError, QueueOverrun
from .events import AsyncEvent
from .locking import locked, made_locked

CQE_BITS = 22
CQE_MAX = 1 << CQE_BITS
COMP_VECTORS = 1


def check_creator(made, context, table="cqs"):
    """Raise PyverbsUserError if ``context`` is none that has such things, or InvalidValue if it is closed."""
    if not hasattr(context, table):
        raise PyverbsUserError(f"Cannot create {type(made).__name__} from {type(context)}")
    context.check_open()


class CompChannel(Closing):
    """Where CQs tell of completions: one event per :meth:`CQ.req_notify`.

    Attributes
    ----------
    cqs : dict
        Those that tell it, as keys.
    events : deque of CQ
    """

    @made_locked
    def __init__(self, context):
        check_creator(self, context, "channels")
        self.context = context
        self.events = collections.deque()
        self.cqs = {}
        self.closed = False
        context.channels[self] = None

    @locked
    def get_cq_event(self, expected_cq=None, *, timeout_ns=None):
        """Wait for an event and return its CQ.

        Raises
        ------
        TimedOut
        InvalidValue
            If the channel is closed, or is while this waits.
        PyverbsRDMAError
            If it is of another CQ than the one that is expected, and gone with that.
        """
        self._check()
        self.context.run_until(lambda: self.events or self.closed, timeout_ns)
        self._check()
        cq = self.events.popleft()
        cq.unacknowledged += 1
        if expected_cq is not None and cq is not expected_cq:
            raise PyverbsRDMAError("Received event on an unexpected CQ")
        return cq

    def _check(self):
        if self.closed:
            raise InvalidValue("the completion channel is closed")

    @locked
    def close(self):
        """Destroy it, and before it the CQs that tell it; who waits for an event is told."""
        for cq in list(self.cqs):
            cq.close()
        self.closed = True
        self.events.clear()
        self.context.channels.pop(self, None)


class CQ(Closing):
    """A completion queue.

    Parameters
    ----------
    context : Context
    cqe : int
        Completions it can hold. One that does not fit overruns the queue for good: its QPs go into error, the context
        gets an event, the completions that are there can be polled, and then polling raises.
    cq_context : object
        The application's.
    channel : CompChannel or None
    comp_vector : int
        0: there is one.

    Attributes
    ----------
    qps : dict
        The QPs that use it, as keys.
    overrun : bool
    lost : int
        Completions that did not fit.
    unacknowledged : int
        Events that were taken and not acknowledged.
    """

    @made_locked
    def __init__(self, context, cqe, cq_context=None, channel=None, comp_vector=0):
        check_creator(self, context)
        if channel is not None:
            instance("channel", channel, CompChannel)
        if channel is not None and channel.context is not context:
            raise InvalidValue("the completion channel is of another context")
        self.context, self.cq_context, self.comp_channel = context, cq_context, channel
        self.cqe = self._size(cqe)
        between("comp_vector", comp_vector, 0, COMP_VECTORS - 1)
        self._queue = collections.deque()
        self._notify = self._solicited_only = False
        self.overrun = self.closed = False
        self.lost = self.unacknowledged = 0
        self.qps = {}
        context.cqs[self] = None
        if channel is not None:
            channel.cqs[self] = None

    @staticmethod
    def _size(cqe):
        return between("cqe", int(cqe) if isinstance(cqe, float) and cqe.is_integer() else cqe, 1, CQE_MAX)

    @property
    def channel(self):
        return self.comp_channel

    def push(self, wc, solicited=False):
        """Add a completion (the QPs do); ``solicited`` if the peer asked for an event, as an error always does."""
        if self.overrun or len(self._queue) >= self.cqe:
            self.lost += 1
            self._overrun()
            return
        self._queue.append(wc)
        if self._notify and (solicited or not self._solicited_only or wc.status is not WCStatus.SUCCESS):
            self._tell()

    def push_all(self, wcs):
        """Add completions that nobody asked an event for."""
        if self._notify or self.overrun or len(self._queue) + len(wcs) > self.cqe:
            for wc in wcs:
                self.push(wc)
        else:
            self._queue.extend(wcs)

    def _overrun(self):
        if self.overrun:
            return
        self.overrun = True
        self.context.async_events.append(AsyncEvent(EventType.CQ_ERR, self))
        self._tell()
        for qp in list(self.qps):
            qp.engine.fail(WCStatus.WR_FLUSH_ERR)

    def _tell(self):
        self._notify = False
        if self.comp_channel is not None:
            self.comp_channel.events.append(self)

    @locked
    def poll(self, num_entries=1):
        """(count, completions), without waiting.

        Raises
        ------
        InvalidValue
            If it is closed, or less than 0 are asked for.
        QueueOverrun
            If the queue overran, and what it held was polled.
        """
        self._check_open()
        self.context.progress()
        return self.take(num_entries)

    def take(self, num_entries):
        """The same, of what is already there."""
        if self._queue or self.closed or self.overrun or not isinstance(num_entries, int) or num_entries < 0:
            return self._take(num_entries)
        return 0, []

    @locked
    def _take(self, num_entries):
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

    def forget(self, qp_num):
        """A QP is reset: none of its completions can be polled any more."""
        self._queue = collections.deque(wc for wc in self._queue if wc.qp_num != qp_num)

    @locked
    def wait(self, num_entries=1, timeout_ns=None):
        """Up to ``num_entries`` completions; blocks for the first one.

        Raises
        ------
        TimedOut, QueueOverrun
        InvalidValue
            If it is closed, or is meanwhile.
        """
        self.context.run_until(lambda: self._queue or self.overrun or self.closed, timeout_ns)
        return self.take(num_entries)[1]

    @locked
    def req_notify(self, solicited_only=False):
        """The next completion makes an event on the channel; with ``solicited_only`` the next one that the peer asked
        for, or that is an error. What was asked for with less stays asked for."""
        self._check_open()
        self._solicited_only = bool(solicited_only) and (self._solicited_only or not self._notify)
        self._notify = True

    @locked
    def ack_events(self, num_events):
        """So many events that were taken from the channel are done with.

        Raises
        ------
        InvalidValue
            If there are not so many.
        """
        self.unacknowledged -= between("num_events", num_events, 0, self.unacknowledged)

    @locked
    def resize(self, cqe):
        """Let it hold another number of completions.

        Raises
        ------
        InvalidValue
            If it holds more already, or overran.
        """
        size = self._size(cqe)
        self._check_open()
        if self.overrun or size < len(self._queue):
            raise InvalidValue(f"Failed to resize CQ: it holds {len(self._queue)} completions"
                               + (", and overran" if self.overrun else ""))
        self.cqe = size

    def _check_open(self):
        if self.closed:
            raise InvalidValue("the CQ is closed")

    def __len__(self):
        return len(self._queue)

    def __bool__(self):
        return True

    @locked
    def close(self):
        """Destroy it, and before it the QPs that use it."""
        if self.closed:
            return
        for qp in list(self.qps):
            qp.close()
        self.closed = True
        self._queue.clear()
        self.context.cqs.pop(self, None)
        if self.comp_channel is not None:
            self.comp_channel.cqs.pop(self, None)
