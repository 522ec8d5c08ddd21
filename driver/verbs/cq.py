"""Completion queues and completion channels."""

import collections


class CompChannel:
    """Where CQs tell of completions: one event per :meth:`CQ.req_notify`."""

    def __init__(self, context):
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
        Completions it can hold. One that does not fit overruns the queue: polling then raises.
    cq_context : object
        The application's.
    channel : CompChannel or None
    """

    def __init__(self, context, cqe, cq_context=None, channel=None):
        if cqe < 1:
            raise ValueError("a CQ holds at least one completion")
        self.context, self.cqe, self.cq_context, self.channel = context, cqe, cq_context, channel
        self._queue = collections.deque()
        self._notify = False
        self.overrun = False

    def push(self, wc):
        """Add a completion (the QPs do)."""
        if len(self._queue) >= self.cqe:
            self.overrun = True
            return
        self._queue.append(wc)
        if self._notify and self.channel is not None:
            self._notify = False
            self.channel.events.append(self)

    def poll(self, num_entries=1):
        """(count, completions), without waiting."""
        self.context.progress()
        return self.take(num_entries)

    def take(self, num_entries):
        """The same, of what is already there."""
        if self.overrun:
            raise OverflowError(f"CQ overrun: more than {self.cqe} completions were not polled")
        wcs = [self._queue.popleft() for _ in range(min(num_entries, len(self._queue)))]
        return len(wcs), wcs

    def wait(self, num_entries=1, timeout_ns=None):
        """Up to ``num_entries`` completions; blocks for the first one.

        Raises
        ------
        TimeoutError
        """
        self.context.run_until(lambda: self._queue or self.overrun, timeout_ns)
        return self.take(num_entries)[1]

    def req_notify(self, solicited_only=False):
        """The next completion makes an event on the channel."""
        self._notify = True

    def __len__(self):
        return len(self._queue)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._queue.clear()
