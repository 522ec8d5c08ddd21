"""A context whose card makes progress in an event loop."""

import asyncio
import contextlib

from ..verbs.context import Context
from .qp import AsyncQP

IDLE_NS = 20_000    # at most that the event loop stands still while the card has nothing to say


class AsyncContext:
    """A :class:`~weft.driver.verbs.context.Context`, opened and closed with ``async with``.

    Parameters
    ----------
    context : Context or None
    options
        Of the context, if there is none.

    Attributes
    ----------
    context : Context
        Everything is made of it as in programs that wait; its QPs by :meth:`qp`.
    """

    def __init__(self, context=None, **options):
        self.context = context or Context(**options)
        self._waiters, self._task = [], None

    def qp(self, pd, **options):
        """An :class:`~weft.driver.aio.qp.AsyncQP` with a CQ of its own; ``options`` are those of ``rc_init_attr``."""
        qp = AsyncQP(pd, **options)
        self.watch(qp)
        return qp

    def watch(self, waiter):
        """Call ``waiter.deliver()`` in every round, and ``waiter.abandon()`` at the end."""
        self._waiters.append(waiter)

    def unwatch(self, waiter):
        """Do not any more."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    async def _progress(self):
        while True:
            busy = self.context.progress()
            for waiter in list(self._waiters):
                busy |= waiter.deliver()
            if not busy:
                self.context.wait(IDLE_NS)
            await asyncio.sleep(0)

    async def __aenter__(self):
        self._task = asyncio.create_task(self._progress())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self.context.close()
        for waiter in list(self._waiters):
            waiter.abandon()
