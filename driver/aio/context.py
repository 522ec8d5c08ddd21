"""Context whose card makes progress in an event loop."""

import asyncio
import contextlib
from typing import Any, Protocol, Self

from ..verbs.context import Context
from ..verbs.pd import PD
from .qp import AsyncQP

IDLE_NS = 20_000    # longest block of the event loop while the card is idle


class Waiter(Protocol):
    """Object that tasks wait for; an :class:`AsyncContext` calls it in every round, and at the end."""

    def deliver(self) -> bool: ...

    def abandon(self) -> None: ...


class AsyncContext:
    """Asynchronous :class:`~weft.driver.verbs.context.Context`, opened and closed with ``async with``.

    Parameters
    ----------
    context : Context or None
    options
        Options of a new context, without ``context``.

    Attributes
    ----------
    context : Context
        Objects are created from it as in synchronous programs, except for QPs, which :meth:`qp` creates.
    """

    def __init__(self, context: Context | None = None, **options: Any) -> None:
        self.context = context or Context(**options)
        self._waiters: list[Waiter] = []
        self._task: asyncio.Task[None] | None = None

    def qp(self, pd: PD, **options: Any) -> AsyncQP:
        """Return an :class:`~weft.driver.aio.qp.AsyncQP` with a separate CQ. ``options`` are those of ``rc_init_attr``.
        """
        qp = AsyncQP(pd, **options)
        self.watch(qp)
        return qp

    def watch(self, waiter: Waiter) -> None:
        """Call ``waiter.deliver()`` in every round, and ``waiter.abandon()`` at the end."""
        self._waiters.append(waiter)

    def unwatch(self, waiter: Waiter) -> None:
        """End the calls for ``waiter``."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    async def _progress(self) -> None:
        while True:
            busy = self.context.progress()
            for waiter in list(self._waiters):
                busy |= waiter.deliver()
            if not busy:
                self.context.wait(IDLE_NS)
            await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._progress())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self.context.close()
        for waiter in list(self._waiters):
            waiter.abandon()
