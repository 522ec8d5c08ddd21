"""Connections by IP address and port, for asyncio."""

import asyncio
import contextlib

from ..cm.addr_info import AddrInfo
from ..cm.cmid import RESOLVE_MS, ConnectionFailed
from ..cm.conn_param import ConnParam
from ..cm.enums import EventType
from ..cm.events import CMEventChannel
from ..cm.identifier import Identifier
from ..connection.connection import State
from ..terms.errors import InvalidValue


class _Events:
    """Awaitable events of a CMID; an :class:`~weft.driver.aio.context.AsyncContext` delivers them."""

    def __init__(self, aio, pd):
        self.aio, self.pd, self.channel = aio, pd, CMEventChannel()
        self._waiting = None
        aio.watch(self)

    async def next(self):
        while not self.channel.records:
            if self.channel.closed:
                raise InvalidValue("the connection is closed")
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self.channel.take(0)

    def deliver(self):
        """Wake the waiting task. Return true if there was one."""
        if self._waiting is None or not (self.channel.records or self.channel.closed):
            return False
        waiting, self._waiting = self._waiting, None
        if not waiting.done():
            waiting.set_result(None)
        return True

    def abandon(self):
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

    def __init__(self, events, identifier, options):
        self._events, self._identifier = events, identifier
        self.qp = events.aio.qp(events.pd, **options)
        identifier.use_qp(self.qp.qp)

    @property
    def private_data(self):
        return self._identifier.private_data

    async def _until(self, what, wanted):
        while True:
            record = await self._events.next()
            if record.type is wanted:
                return
            if record.type not in (EventType.ESTABLISHED, EventType.TIMEWAIT_EXIT):
                raise ConnectionFailed(what, record)

    async def disconnect(self):
        """Disconnect. Outstanding requests fail."""
        self._identifier.end()
        if self._identifier.connection.state is State.DREQ_SENT:
            await self.wait_disconnected()

    async def wait_disconnected(self):
        """Wait until the peer disconnects."""
        if self._identifier.connection.state in (State.ESTABLISHED, State.DREQ_SENT):
            await self._until("Failed to Disconnect", EventType.DISCONNECTED)

    def close(self):
        """Destroy the connection and its QP. Disconnects if necessary."""
        self.qp.close()
        self._identifier.finish()
        self._events.abandon()
        self._events.aio.unwatch(self._events)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()


async def connect(aio, pd, address, port, *, private_data=b"", **options):
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


def _param(private_data):
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

    def __init__(self, listener, connection):
        self._events = _Events(listener.aio, listener.pd)
        self._identifier = listener._identifier.child(self._events.channel, connection)
        self._options, self.private_data = listener._options, self._identifier.private_data

    async def accept(self, private_data=b"", *, prepare=lambda connection: None):
        """Accept the request and return the :class:`AsyncConnection`.

        ``prepare(connection)`` is called before the peer can send, to post receives.
        """
        connection = AsyncConnection(self._events, self._identifier, self._options)
        try:
            prepare(connection)
            self._identifier.accept_request(_param(private_data))
            while self._identifier.connection.state is not State.ESTABLISHED:
                record = await self._events.next()
                if record.type is not EventType.ESTABLISHED:
                    raise ConnectionFailed("Failed to Accept Connection", record)
        except BaseException:
            connection.close()
            raise
        return connection

    def reject(self, private_data=b""):
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

    def __init__(self, aio, pd, port, *, backlog=0, **options):
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
    def port(self):
        return self._identifier.src_port

    async def get_request(self):
        """Return the next :class:`AsyncRequest`."""
        record = await self._events.next()
        if record.type is not EventType.CONNECT_REQUEST:
            raise ConnectionFailed("Failed to get request", record)
        return AsyncRequest(self, record.connection)

    def __aiter__(self):
        return self

    async def __anext__(self):
        with contextlib.suppress(InvalidValue):
            return await self.get_request()
        raise StopAsyncIteration

    def close(self):
        """Stop listening. A task that waits in :meth:`get_request` gets InvalidValue."""
        self._identifier.finish()
        self._events.abandon()
        self.aio.unwatch(self._events)
