"""Tests of the command processor: memory regions and the page table."""

import dataclasses

import pytest

from weft.hdl.contract import abi
from weft.hdl.contract.abi import PAGE_2M, PAGE_4K
from weft.model.functional.translate import MrEntry, page_count
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.command.surroundings import PARAMS, CommandBench, Op, Status, limit, start
from weft.tb.test.rounds import rounds


@limit(200)
async def key_is_revoked_before_the_response(dut):
    env = await start(dut)
    mr = MrEntry(key_tag=0x5A, access=0xB, pd=0xABCDEF, va=0xFFFF_0000_1234_5678, length=0x1234, pte_index=33)
    fields = dataclasses.asdict(mr) | {"mr_index": 3}
    del fields["valid"]
    await env.do(Op.MR_CREATE, **fields)
    assert await env.mr(3) == mr
    await env.do(Op.MR_CREATE, Status.IN_USE, **(fields | {"key_tag": 1}))
    assert await env.mr(3) == mr

    async def gone():
        assert await env.see("mr", 3) == 0, "still in the table"

    env.before_drained = gone
    await env.do(Op.MR_DESTROY, mr_index=3)
    assert env.drains == 1
    for index in (3, 4, PARAMS.mrs + 3):
        await env.do(Op.MR_DESTROY, Status.BAD_INDEX, mr_index=index)
    await env.do(Op.MR_CREATE, Status.BAD_INDEX, **(fields | {"mr_index": PARAMS.mrs}))
    assert env.drains == 1
    await env.do(Op.MR_CREATE, **(fields | {"page_2m": 1}))
    assert await env.mr(3) == dataclasses.replace(mr, page_2m=1)


@limit(2000)
async def memory_regions_must_fit(dut):
    env = await start(dut, pause=0)
    rng = env.rng
    wanted = [(Op.MR_CREATE, Status.OK), (Op.MR_CREATE, Status.BAD_VALUE)]
    for _ in rounds(env.seen, wanted, times=51, least=600, most=3000):
        page_2m = rng.randrange(2)
        size = PAGE_2M if page_2m else PAGE_4K
        pte_index = rng.choice([0, rng.randrange(PARAMS.ptes), PARAMS.ptes, rng.getrandbits(32), 0xFFFF_FFFF])
        length = rng.choice([
            rng.randrange(2 * size), (PARAMS.ptes - pte_index) * size + rng.randrange(-1, 2), (1 << 48) - 1, 1 << 48,
            (PARAMS.ptes - pte_index) * size - rng.randrange(size), rng.getrandbits(64)]) % (1 << 64)
        va = rng.choice([rng.getrandbits(64), (1 << 64) - length + rng.randrange(-1, 2), 0, size, size - 1]) % (1 << 64)
        good = (length < 1 << 48 and va + length <= 1 << 64
                and pte_index + page_count(va, length, size) <= PARAMS.ptes)
        index = rng.randrange(PARAMS.mrs)
        fields = {"key_tag": rng.getrandbits(8), "access": rng.getrandbits(4), "pd": rng.getrandbits(24), "va": va,
                  "length": length, "pte_index": pte_index, "page_2m": page_2m}
        await env.do(Op.MR_CREATE, Status.OK if good else Status.BAD_VALUE, mr_index=index, **fields)
        if good:
            assert await env.mr(index) == MrEntry(**fields)
            await env.do(Op.MR_DESTROY, mr_index=index)


@limit(2000)
async def page_table_is_copied(dut):
    env = await start(dut, pause=0.2)
    rng, table = env.rng, {}

    async def compare():
        for n in range(PARAMS.ptes):
            assert await env.see("page", n) == table.get(n, 0), n

    for case in ["good"] * 6 + ["full", "bad value", "dma error", "both", "good"]:
        count = 512 if case == "full" else rng.randrange(1, 40) if case == "good" else rng.randrange(100, 400)
        first = PARAMS.ptes - count if case == "full" else rng.randrange(PARAMS.ptes - count + 1)
        line = rng.getrandbits(50)
        entries = [page | abi.pte_damage(page) for page in (rng.getrandbits(52) << 12 for _ in range(count))]
        env.bad_lines = set()
        bad = set()
        if case in ("bad value", "both"):
            bad = set(rng.sample(range(count), 3))
            for n in bad:
                entries[n] ^= 1 << rng.randrange(64)
        if case in ("dma error", "both"):
            revoked = rng.randrange((count + 7) // 8)
            env.bad_lines = {line + revoked}
            bad |= set(range(8 * revoked, 8 * revoked + 8))
        text = b"".join(e.to_bytes(8, "little") for e in entries)
        text += bytes(rng.getrandbits(8) for _ in range(-len(text) % 64))
        env.memory = {line + n: text[64 * n:64 * n + 64] for n in range(len(text) // 64)}
        status = {"bad value": Status.BAD_VALUE, "dma error": Status.DMA_ERROR, "both": Status.DMA_ERROR}.get(
            case, Status.OK)
        await env.do(Op.PAGE_TABLE_WRITE, status, pte_index=first, count=count, address=line * 64)
        table |= {first + n: e >> 12 for n, e in enumerate(entries) if n not in bad}
    await compare()
    assert env.overtakes > 20 and env.in_flight_most >= 3, (env.overtakes, env.in_flight_most)
    lines = env.lines.received
    for refusal, fields in (
        (Status.BAD_INDEX, {"pte_index": PARAMS.ptes - 7, "count": 8}),
        (Status.BAD_INDEX, {"pte_index": 0xFFFF_FFFF, "count": 1}),
        (Status.BAD_VALUE, {"count": 0}), (Status.BAD_VALUE, {"count": 513}),
        (Status.BAD_VALUE, {"count": 8, "address": 8}),
    ):
        await env.do(Op.PAGE_TABLE_WRITE, refusal, **fields)
    assert env.lines.received == lines
    await compare()


@pytest.mark.parametrize("sim", SIMULATORS)
def test_memory_is_registered(sim):
    simulate(CommandBench(PARAMS), name="command_processor", cases=__file__, sim=sim)
