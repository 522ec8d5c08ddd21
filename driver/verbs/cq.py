"""Completion queues and completion channels."""

import collections

from ..terms.checks import between
from ..terms.enums import EventType, WCStatus
from ..terms.errors import InUse, InvalidValue, NotSupported, QueueOverrun
from .events import AsyncEvent

CQE_MAX = 1 << 22


class CompChannel:
    """Where CQs tell of completions: one event per :meth:`CQ.req_notify`."""

    def __init__(self, context):
        context.check_open()
        self.context = context
        self.events = collections.deque()

    def get_cq_event(self, timeout_ns=None):
        """Wait for an event and return its CQ.

        Raises
        ------
        TimeoutError
        """
        self.context.run_until(lambda: self.events, timeout_ns)
        return self.events.popleft()


class CQ:
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

    Attributes
    ----------
    qps : dict
        The QPs that use it, as keys.
    overrun : bool
    lost : int
        Completions that did not fit.
    """

    def __init__(self, context, cqe, cq_context=None, channel=None):
        context.check_open()
        if channel is not None and channel.context is not context:
            raise InvalidValue("the completion channel is of another context")
        self.context, self.cq_context, self.channel = context, cq_context, channel
        self.cqe = between("cqe", cqe, 1, CQE_MAX)
        self._queue = collections.deque()
        self._notify = False
        self.overrun = self.closed = False
        self.lost = 0
        self.qps = {}
        context.cqs[self] = None

    def push(self, wc):
        """Add a completion (the QPs do)."""
        if self.overrun or len(self._queue) >= self.cqe:
            self.lost += 1
            self._overrun()
            return
        self._queue.append(wc)
        if self._notify:
            self._tell()

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
        if self.channel is not None:
            self.channel.events.append(self)

    def poll(self, num_entries=1):
        """(count, completions), without waiting.

        Raises
        ------
        OverflowError
            If the queue overran, and what it held was polled.
        """
        self.context.progress()
        return self.take(num_entries)

    def take(self, num_entries):
        """The same, of what is already there."""
        if self.overrun and not self._queue:
            raise QueueOverrun(f"CQ overrun: {self.lost} completions beyond {self.cqe} are lost")
        wcs = [self._queue.popleft() for _ in range(min(num_entries, len(self._queue)))]
        return len(wcs), wcs

    def wait(self, num_entries=1, timeout_ns=None):
        """Up to ``num_entries`` completions; blocks for the first one.

        Raises
        ------
        TimeoutError, OverflowError
        """
        self.context.run_until(lambda: self._queue or self.overrun, timeout_ns)
        return self.take(num_entries)[1]

    def req_notify(self, solicited_only=False):
        """The next completion makes an event on the channel. There are no solicited ones."""
        if solicited_only:
            raise NotSupported("solicited events do not exist here")
        self._notify = True

    def __len__(self):
        return len(self._queue)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Destroy it; not while a QP uses it."""
        if self.qps:
            raise InUse(f"the CQ is in use by QPs {[qp.qp_num for qp in self.qps]}")
        self.closed = True
        self._queue.clear()
        self.context.cqs.pop(self, None)
