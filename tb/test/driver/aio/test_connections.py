"""Asynchronous connections by address and port: two hosts in one event loop, one task for each end."""

import asyncio
import contextlib

import pytest

from weft.driver.aio.connection import AsyncListener, connect
from weft.driver.aio.context import AsyncContext, RequestFailed
from weft.driver.cm.cmid import ConnectionFailed
from weft.driver.terms.enums import AccessFlag
from weft.driver.terms.errors import PyverbsRDMAError
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.wr import SGE
from weft.model.functional.host import connected_pair
from weft.tb.test.driver.cm.hosts import LOSSY, TIMEOUT

BYTES = 700


class Host:
    """Host of a program with one memory region."""

    def __init__(self, device, number):
        self.aio = AsyncContext(device=device, mac=0x02_0000_0000_01 + number, ip=0x0A00_0001 + number,
                                config=ContextConfig(cm_timeout=TIMEOUT))
        self.pd = PD(self.aio.context)
        self.mr = MR(self.pd, BYTES, AccessFlag.LOCAL_WRITE)

    def sge(self):
        return [SGE(self.mr.buf, BYTES, self.mr.lkey)]


def run(program, seed=0, link=None):
    _, devices, _ = connected_pair(seed=seed, forward=link)
    hosts = [Host(device, i) for i, device in enumerate(devices)]

    async def main():
        async with hosts[0].aio, hosts[1].aio:
            return await asyncio.wait_for(program(*hosts), 60)

    asyncio.run(main())
    assert not any(device.memory._pages for device in devices), "memory was not given back"


@pytest.mark.parametrize("link", [None, LOSSY], ids=["good", "lossy"])
def test_ping_pong(link, bench_seed):
    async def serve(host, listener):
        request = await listener.get_request()
        assert request.private_data[:5] == b"hello"
        receives = []
        async with await request.accept(
                b"welcome", prepare=lambda end: receives.append(asyncio.create_task(end.qp.recv(host.sge())))) as end:
            for left in (2, 1, 0):
                await receives.pop()
                receives.append(asyncio.create_task(end.qp.recv(host.sge())))
                sent = asyncio.create_task(end.qp.send(host.sge()))
                if left:
                    await sent
            await end.wait_disconnected()       # by the client, which receives the last message
            await end.disconnect()
            with contextlib.suppress(RequestFailed):    # its acknowledgement may be lost
                await sent
            with pytest.raises(RequestFailed, match="FLUSH"):
                await receives.pop()

    async def program(server, client):
        listener = AsyncListener(server.aio, server.pd, 7471, backlog=1)
        served = asyncio.create_task(serve(server, listener))
        async with await connect(client.aio, client.pd, "10.0.0.1", 7471, private_data=b"hello") as end:
            assert end.private_data == b"welcome".ljust(196, b"\0")
            for n in range(3):
                client.mr.write(bytes([n]) * BYTES)
                received = asyncio.create_task(end.qp.recv(client.sge()))
                await end.qp.send(client.sge())
                await received
                assert client.mr.read(BYTES, 0) == bytes([n]) * BYTES
            await end.disconnect()
        await served
        listener.close()

    run(program, bench_seed, link)


def test_rejection_and_missing_response_raise():
    async def program(server, client):
        async def refuse(listener):
            async for request in listener:
                request.reject(b"no")

        listener = AsyncListener(server.aio, server.pd, 7471)
        refusing = asyncio.create_task(refuse(listener))
        with pytest.raises(ConnectionFailed, match="REJECTED, status 28") as failed:
            await connect(client.aio, client.pd, "10.0.0.1", 7471)
        assert failed.value.event.private_data[:2] == b"no"
        with pytest.raises(ConnectionFailed, match="REJECTED, status 8"):
            await connect(client.aio, client.pd, "10.0.0.1", 7472)
        with pytest.raises(ConnectionFailed, match="ADDR_ERROR"):
            await connect(client.aio, client.pd, "10.0.0.9", 7471)
        with pytest.raises(PyverbsRDMAError, match="another listener"):
            AsyncListener(server.aio, server.pd, listener.port)
        listener.close()
        await refusing

    run(program)


def test_many_at_a_time():
    count = 5

    async def program(server, client):
        listener, ends = AsyncListener(server.aio, server.pd, 0, max_send_wr=4, max_recv_wr=4), []

        async def accept():
            async for request in listener:
                ends.append(await request.accept())
                if len(ends) == count:
                    return

        accepting = asyncio.create_task(accept())
        callers = await asyncio.gather(*(connect(client.aio, client.pd, "10.0.0.1", listener.port, max_send_wr=4,
                                                 max_recv_wr=4) for _ in range(count)))
        await accepting
        await asyncio.gather(*(end.disconnect() for end in ends), *(end.disconnect() for end in callers))
        for end in (*ends, *callers):
            end.close()
        listener.close()

    run(program)


def test_nothing_more_comes_after_a_reset_of_the_card():
    async def program(server, client):
        listener = AsyncListener(server.aio, server.pd, 7471)
        accepted = asyncio.create_task(serve(listener))
        async with await connect(client.aio, client.pd, "10.0.0.1", 7471) as end:
            async with await accepted as peer:
                client.aio.context.reset()
                await end.wait_disconnected()
                with pytest.raises(PyverbsRDMAError, match="there is no connection"):
                    await end.disconnect()
                await peer.disconnect()
        listener.close()

    async def serve(listener):
        return await (await listener.get_request()).accept()

    run(program)
