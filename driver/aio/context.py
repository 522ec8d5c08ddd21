"""Context whose card makes progress in an event loop."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Protocol, Self, TypeVar

from ..terms.enums import WCStatus, WROpcode
from ..terms.errors import PyverbsRDMAError
from ..terms.wc import WC
from ..verbs.context import Context
from ..verbs.cq import CQ
from ..verbs.pd import PD
from ..verbs.qp import QP, rc_init_attr
from ..verbs.wr import SGE, RecvWR, SendWR

Request = TypeVar("Request", SendWR, RecvWR)
IDLE_NS = 20_000    # longest block of the event loop while the card is idle


class RequestFailed(PyverbsRDMAError):
    """A request failed. ``wc`` is its completion, or None if the QP was closed before a completion."""

    def __init__(self, wc: WC | None) -> None:
        super().__init__("the QP was closed" if wc is None else f"Completion status is {wc.status.name}")
        self.wc = wc


class AsyncQP:
    """Asynchronous queue pair.

    Requests are awaited and return their :class:`~weft.driver.terms.wc.WC`. The number of outstanding requests is
    limited by the capacities of the QP. Further requests wait, in the order in which they were made.

    Parameters
    ----------
    pd : PD
    options
        Of :func:`~weft.driver.verbs.qp_init_attr.rc_init_attr`.

    Attributes
    ----------
    qp : QP
        For connection, queries and so on. Other code must not post to it.
    """

    def __init__(self, pd: PD, **options: Any) -> None:
        init = rc_init_attr(None, **{"sq_sig_all": 1} | options)
        self._cq = init.scq = init.rcq = CQ(pd.context, max(1, init.max_send_wr + init.max_recv_wr))
        self.qp = QP(pd, init)
        self._sends, self._receives = (asyncio.Semaphore(most) for most in (init.max_send_wr, init.max_recv_wr))
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[WC | None]] = {}

    # ------------------------------------------------------------------------------------ requests

    async def send(self, sg: list[SGE], *, imm: int | None = None) -> WC:
        """Send the bytes of scatter-gather entries."""
        opcode = WROpcode.SEND if imm is None else WROpcode.SEND_WITH_IMM
        return await self.post(SendWR(opcode=opcode, sg=sg, imm_data=imm or 0))

    async def write(self, sg: list[SGE], rkey: int, addr: int, *, imm: int | None = None) -> WC:
        """Write the bytes of scatter-gather entries to the peer's memory."""
        opcode = WROpcode.RDMA_WRITE if imm is None else WROpcode.RDMA_WRITE_WITH_IMM
        return await self.post(SendWR(opcode=opcode, sg=sg, imm_data=imm or 0, rkey=rkey, remote_addr=addr))

    async def read(self, sg: list[SGE], rkey: int, addr: int) -> WC:
        """Read from the peer's memory into scatter-gather entries."""
        return await self.post(SendWR(opcode=WROpcode.RDMA_READ, sg=sg, rkey=rkey, remote_addr=addr))

    async def post(self, wr: SendWR) -> WC:
        """Post a :class:`SendWR`. Its ``wr_id`` is overwritten.

        Raises
        ------
        RequestFailed, InvalidValue, NotSupported
        """
        return await self._carry_out(self._sends, self.qp.post_send, wr)

    async def recv(self, sg: Iterable[SGE] = ()) -> WC:
        """Receive a message into scatter-gather entries, or only its immediate."""
        return await self._carry_out(self._receives, self.qp.post_recv, RecvWR(sg=list(sg)))

    async def _carry_out(self, space: asyncio.Semaphore, post: Callable[[Request], None], wr: Request) -> WC:
        async with space:
            wr.wr_id = next(self._numbers)
            done = self._waiting[wr.wr_id] = asyncio.get_running_loop().create_future()
            try:
                post(wr)
            except BaseException:
                del self._waiting[wr.wr_id]
                raise
            wc = await asyncio.shield(done)
        if wc is None or wc.status is not WCStatus.SUCCESS:
            raise RequestFailed(wc)
        return wc

    # --------------------------------------------------------------------------------- completions

    def deliver(self) -> bool:
        """Deliver completions to the waiting tasks. Return true if there were any."""
        if self._cq.closed or not (wcs := self._cq.take(len(self._cq))[1]):
            return False
        for wc in wcs:
            self._finish(wc.wr_id, wc)
        return True

    def abandon(self) -> None:
        """End all outstanding requests: the QP is closed."""
        for number in list(self._waiting):
            self._finish(number, None)

    def _finish(self, number: int, wc: WC | None) -> None:
        done = self._waiting.pop(number)
        if not done.done():
            done.set_result(wc)

    def close(self) -> None:
        """Destroy the QP and its CQ."""
        self._cq.close()
        self.abandon()


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
        """Return an :class:`AsyncQP` with a separate CQ. ``options`` are those of ``rc_init_attr``.
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
