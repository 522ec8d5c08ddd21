"""Asynchronous programs: two hosts in one event loop."""

import asyncio

import pytest

from weft.driver.aio.context import AsyncContext, RequestFailed
from weft.driver.terms.enums import AccessFlag, WCStatus
from weft.driver.verbs.context import Context
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.wr import SGE
from weft.model.functional.host import connected_pair
from weft.model.link import LinkConfig

LENGTH = 5000


class Host:
    """Host with a context, memory and an asynchronous QP."""

    def __init__(self, device, number, **options):
        self.aio = AsyncContext(Context(device, mac=0x02_0000_0000_01 + number, ip=0x0A00_0001 + number))
        pd = PD(self.aio.context)
        self.mr = MR(pd, 4 * LENGTH, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE)
        self.end = self.aio.qp(pd, **options)

    def sge(self, at=0):
        return [SGE(self.mr.buf + at, LENGTH, self.mr.lkey)]


def run(program, **options):
    """Run ``program(a, b)`` on two connected hosts, and check that they leave no memory allocated."""
    _, devices, _ = connected_pair(seed=5, forward=LinkConfig(loss=0.02))
    hosts = [Host(device, i, **options) for i, device in enumerate(devices)]
    for host, peer in zip(hosts, hosts[::-1], strict=True):
        host.end.qp.connect(peer.end.qp.connection)

    async def main():
        async with hosts[0].aio, hosts[1].aio:
            return await program(*hosts)

    result = asyncio.run(main())
    assert not any(device.memory._pages for device in devices)
    return result


def test_requests_are_awaited():
    async def program(a, b):
        a.mr.write(b"x" * LENGTH)
        receive = asyncio.create_task(b.end.recv())
        wc = await a.end.write(a.sge(), b.mr.rkey, b.mr.buf + LENGTH, imm=7)
        assert wc.byte_len == LENGTH and wc.status is WCStatus.SUCCESS
        message = await receive
        assert message.imm_data == 7 and b.mr.read(LENGTH, LENGTH) == b"x" * LENGTH

    run(program)


def test_excess_requests_wait_for_space():
    async def program(a, b):
        async def receive():
            return [(await b.end.recv()).imm_data for _ in range(30)]

        received = asyncio.create_task(receive())
        done = await asyncio.gather(*(a.end.write(a.sge(), b.mr.rkey, b.mr.buf, imm=n) for n in range(30)))
        assert len({wc.wr_id for wc in done}) == 30
        return await received

    assert run(program, max_send_wr=2, max_recv_wr=2) == list(range(30))


def test_failed_request_raises_its_completion():
    async def program(a, b):
        with pytest.raises(ValueError, match="SGEs"):
            await a.end.write(a.sge() * 17, b.mr.rkey, b.mr.buf)
        waiting = asyncio.create_task(a.end.recv())
        await a.end.write(a.sge(), b.mr.rkey, b.mr.buf)
        with pytest.raises(RequestFailed, match="REM_ACCESS_ERR") as failed:
            await a.end.write(a.sge(), b.mr.rkey ^ 1, b.mr.buf)
        assert failed.value.wc.status is WCStatus.REM_ACCESS_ERR
        with pytest.raises(RequestFailed, match="WR_FLUSH_ERR"):
            await waiting
        return "ended"

    assert run(program) == "ended"


def test_waiting_task_is_notified_of_a_closed_qp():
    async def program(a, b):
        waiting = asyncio.create_task(b.end.recv())
        await asyncio.sleep(0)
        b.end.close()
        with pytest.raises(RequestFailed, match="closed"):
            await waiting
        return "told"

    assert run(program) == "told"
