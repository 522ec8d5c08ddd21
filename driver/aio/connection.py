"""Connections by IP address and port, for asyncio."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Self

from ..cm.addr_info import AddrInfo
from ..cm.cmid import RESOLVE_MS, ConnectionFailed
from ..cm.conn_param import ConnParam
from ..cm.enums import EventType
from ..cm.events import CMEventChannel, Record
from ..cm.identifier import Identifier
from ..connection.connection import Connection, State
from ..terms.errors import InvalidValue
from ..verbs.pd import PD
from .context import AsyncContext


class _Events:
    """Awaitable events of a CMID; an :class:`~weft.driver.aio.context.AsyncContext` delivers them."""

    def __init__(self, aio: AsyncContext, pd: PD) -> None:
        self.aio, self.pd, self.channel = aio, pd, CMEventChannel()
        self._waiting: asyncio.Future[None] | None = None
        aio.watch(self)

    async def next(self) -> Record:
        while not self.channel.records:
            if self.channel.closed:
                raise InvalidValue("the connection is closed")
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self.channel.take(0)

    def deliver(self) -> bool:
        """Wake the waiting task. Return true if there was one."""
        if self._waiting is None or not (self.channel.records or self.channel.closed):
            return False
        waiting, self._waiting = self._waiting, None
        if not waiting.done():
            waiting.set_result(None)
        return True

    def abandon(self) -> None:
        """End the event stream."""
        self.channel.close()
        self.deliver()


class AsyncConnection:
    """Connection that :func:`connect` or :meth:`AsyncRequest.accept` returns.

    Attributes
    ----------
    qp : AsyncQP
        For sends and receives.
    private_data : bytes
        Private data of the peer's request or acceptance, padded with zeros.
    """

    def __init__(self, events: _Events, identifier: Identifier, options: dict[str, Any]) -> None:
        self._events, self._identifier = events, identifier
        self.qp = events.aio.qp(events.pd, **options)
        identifier.use_qp(self.qp.qp)

    @property
    def private_data(self) -> bytes:
        return self._identifier.private_data

    async def _until(self, subject: str, wanted: EventType) -> None:
        while True:
            record = await self._events.next()
            if record.type is wanted:
                return
            if record.type not in (EventType.ESTABLISHED, EventType.TIMEWAIT_EXIT):
                raise ConnectionFailed(subject, record)

    async def disconnect(self) -> None:
        """Disconnect. Outstanding requests fail."""
        self._identifier.end()
        if self._identifier.state is State.DREQ_SENT:
            await self.wait_disconnected()

    async def wait_disconnected(self) -> None:
        """Wait until the peer disconnects."""
        if self._identifier.state in (State.ESTABLISHED, State.DREQ_SENT):
            await self._until("Failed to Disconnect", EventType.DISCONNECTED)

    def close(self) -> None:
        """Destroy the connection and its QP. Disconnects if necessary."""
        self.qp.close()
        self._identifier.finish()
        self._events.abandon()
        self._events.aio.unwatch(self._events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def connect(aio: AsyncContext, pd: PD, address: str, port: int, *, private_data: bytes = b"",
                  **options: Any) -> AsyncConnection:
    """Connect to an address and port, and return the :class:`AsyncConnection`.

    ``options`` are those of :func:`~weft.driver.verbs.qp_init_attr.rc_init_attr` for its QP.

    Raises
    ------
    ConnectionFailed
        If the peer rejects the request or is unreachable; ``event`` holds the reason.
    """
    peer, events = AddrInfo(dst=address, dst_service=str(port)), _Events(aio, pd)
    identifier = Identifier(events.channel, pd)
    identifier.attach(0)
    connection = AsyncConnection(events, identifier, options)
    try:
        identifier.resolve(peer.dst, peer.dst_port, RESOLVE_MS * 1_000_000)
        await connection._until("Failed to Resolve Address", EventType.ADDR_RESOLVED)
        identifier.request(_param(private_data))
        await connection._until("Failed to Connect", EventType.ESTABLISHED)
    except BaseException:
        connection.close()
        raise
    return connection


def _param(private_data: bytes) -> ConnParam:
    param = ConnParam.most()
    param.private_data = bytes(private_data)
    return param


class AsyncRequest:
    """Connection request of a peer.

    Attributes
    ----------
    private_data : bytes
        Of the request.
    """

    def __init__(self, listener: "AsyncListener", connection: Connection) -> None:
        self._events = _Events(listener.aio, listener.pd)
        self._identifier = listener._identifier.child(self._events.channel, connection)
        self._options, self.private_data = listener._options, self._identifier.private_data

    async def accept(self, private_data: bytes = b"", *,
                     prepare: Callable[[AsyncConnection], object] = lambda connection: None) -> AsyncConnection:
        """Accept the request and return the :class:`AsyncConnection`.

        ``prepare(connection)`` is called before the peer can send, to post receives.
        """
        connection = AsyncConnection(self._events, self._identifier, self._options)
        try:
            prepare(connection)
            self._identifier.accept_request(_param(private_data))
            while self._identifier.state is not State.ESTABLISHED:
                record = await self._events.next()
                if record.type is not EventType.ESTABLISHED:
                    raise ConnectionFailed("Failed to Accept Connection", record)
        except BaseException:
            connection.close()
            raise
        return connection

    def reject(self, private_data: bytes = b"") -> None:
        """Reject the request."""
        self._identifier.reject_request(private_data)
        self._identifier.finish()
        self._events.aio.unwatch(self._events)


class AsyncListener:
    """Listener for connection requests, which ``async for`` yields.

    Parameters
    ----------
    aio : AsyncContext
    pd : PD
        Of the QPs.
    port : int
    backlog : int
        Largest number of waiting requests; 0 means the maximum.
    options
        Of :func:`~weft.driver.verbs.qp_init_attr.rc_init_attr` for the QPs.
    """

    def __init__(self, aio: AsyncContext, pd: PD, port: int, *, backlog: int = 0, **options: Any) -> None:
        self.aio, self.pd, self._options = aio, pd, options
        self._events = _Events(aio, pd)
        self._identifier = Identifier(self._events.channel, pd)
        self._identifier.attach(0)
        self._identifier.src_port = port
        try:
            self._identifier.listen(backlog)
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> int:
        return self._identifier.src_port

    async def get_request(self) -> AsyncRequest:
        """Return the next :class:`AsyncRequest`."""
        record = await self._events.next()
        if record.type is not EventType.CONNECT_REQUEST or record.connection is None:
            raise ConnectionFailed("Failed to get request", record)
        return AsyncRequest(self, record.connection)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncRequest:
        with contextlib.suppress(InvalidValue):
            return await self.get_request()
        raise StopAsyncIteration

    def close(self) -> None:
        """Stop listening. A task that waits in :meth:`get_request` gets InvalidValue."""
        self._identifier.finish()
        self._events.abandon()
        self.aio.unwatch(self._events)
