"""Tests of the Adamap subsystem with reads for many lists at once, and a cache that gets full."""

from collections import deque
from dataclasses import replace

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl.adamap.adamap import Adamap
from weft.hdl.adamap.prefetch.fetches import LINES, fetch_slots
from weft.hdl.contract import abi
from weft.tb.sim.block.adamap.with_qp_table import WithQpTable
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.adamap.closed_loop import PARAMS, set_up
from weft.tb.test.hdl.adamap.peer import Sender
from weft.tb.test.hdl.adamap.test_lists import until
from weft.tb.test.hdl.adamap.test_recovery import query

MANY = replace(PARAMS, qps=16)      # a QP for each read
SOON, LATE = (5, 20), (100_000, 100_000)


async def cached(loop, qpn, nodes):
    """Wait until ``nodes`` nodes of a QP are cached."""
    while (await query(loop.dut, qpn))[3] != nodes:
        await RisingEdge(loop.dut.clk)


async def unreadable_block(loop, qpn, part):
    """Run a QP whose second read covers several blocks, of which block ``part`` cannot be read: the QP stops."""
    loop.latency = SOON
    first = loop.rng.choice(range(0, len(loop.memory.small) - LINES, LINES))
    loop.free.extendleft(reversed(loop.memory.small[first:first + LINES + 1]))
    qp = await loop.create(qpn, part)
    loop.link(qp, await loop.after_window(qp, 400), [0])
    loop.ring(qp)
    Sender(loop).send_again(qp, *qp.todo[0])
    await until(loop.dut, lambda: not qp.nodes)
    lines = [loop.free[k] for k in range(LINES)]
    for _ in lines:
        loop.link(qp, 0, [0])
    loop.blocks[lines[part]] = None
    loop.ring(qp, LINES)
    errors = loop.seen["QP_ERROR DMA_ERROR"]
    assert int(await loop.port.errors.recv()) == qpn
    await until(loop.dut, lambda: loop.seen["QP_ERROR DMA_ERROR"] > errors)
    assert loop.read.issuperset(lines)
    loop.read -= set(lines)
    await loop.destroy(qp)
    loop.free.clear()


@cocotb.test(timeout_time=100, timeout_unit="us")
async def every_block_of_every_read_may_fail(dut):
    """Use all fetch slots, with reads of several blocks."""
    loop = await set_up(dut, depth=4, watermark=4, exact=False, latency=SOON)
    seen, far = loop.seen, loop.memory.lines[len(loop.memory.small):]
    assert fetch_slots(MANY) == MANY.qps
    for slot in range(MANY.qps):
        loop.free.clear()
        for part in range(LINES):
            await unreadable_block(loop, slot, part)
        assert seen["QP_ERROR DMA_ERROR"] == LINES * (slot + 1)
        loop.latency = LATE        # the next read of that slot stays outstanding
        loop.free += far[2 * slot:2 * slot + 2]
        reads = seen["prefetches"]
        holder = await loop.create(slot, 0)
        loop.link(holder, 0, [0])
        loop.ring(holder)
        await until(dut, lambda reads=reads: seen["prefetches"] > reads)
    assert seen["lines in one read"] == LINES and not seen["QP_ERROR BAD_NODE"]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def full_cache_yields_to_waiting_headers(dut):
    """Nodes whose retransmissions came retire early for a list with a waiting header, but not for a prefetch."""
    loop = await set_up(dut, depth=4, watermark=4, exact=False, slack=100, latency=SOON)
    sender, seen = Sender(loop), loop.seen
    *full, last = [await loop.create(qpn, 1) for qpn in range(PARAMS.qps)]
    for qp in full:
        base = await loop.after_window(qp, 400)
        nodes = 4 if qp.qpn < 3 else 1              # all entries together
        for k in range(nodes):
            loop.link(qp, base + 20 * k, [0, 2])
        loop.ring(qp, nodes)
        sender.send_again(qp, *qp.todo[0])
        await cached(loop, qp.qpn, nodes)
        for psn, rsn in list(qp.todo)[2::2]:
            sender.send_again(qp, psn, rsn)
        await until(dut, lambda qp=qp: not qp.in_flight)
    base = await loop.after_window(last, 400)
    loop.link(last, base, [0])
    loop.ring(last)
    await loop.port.pass_cycles(4000)
    assert (await query(dut, last.qpn))[2:] == [1, 0] and not loop.retired, "no packet waits for that node"
    sender.send_again(last, *last.todo[0])
    await until(dut, lambda: not last.nodes)
    assert seen["nodes_residue"] == 1


@cocotb.test(timeout_time=100, timeout_unit="us")
async def cache_is_shared_by_need(dut):
    """With as many lists as entries, each list has its head in the cache, and its next node arrives in time."""
    loop = await set_up(dut, depth=4, watermark=4, latency=SOON)
    sender, seen = Sender(loop), loop.seen
    qps = [await loop.create(qpn, 1) for qpn in range(MANY.qps)]
    for qp in qps:
        base, nodes = await loop.after_window(qp, 400), 4 if qp.qpn < 4 else 2
        for k in range(nodes):
            loop.link(qp, base + 20 * k, [0, 2])
        loop.ring(qp, nodes)
        await loop.port.pass_cycles(200)
    await loop.port.pass_cycles(1000)
    assert [(await query(dut, qp.qpn))[3] for qp in qps] == [1] * MANY.cache_entries
    loop.latency = LATE        # a fetch that starts now comes too late
    loop.port.hurry()          # headers in the intervals at which they are sent
    for qp in loop.rng.sample(qps, len(qps)):
        for psn, rsn in list(qp.todo)[:4]:
            sender.send_again(qp, psn, rsn)
            await loop.port.pass_cycles(20)
    await until(dut, lambda: loop.retired == 2 * MANY.qps)
    assert not seen["cache_misses"] and not seen["nodes_residue"]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def every_bit_of_a_body_is_read(dut):
    """Retire two bitmaps, which together have every bit set, with all their holes open but the first."""
    loop = await set_up(dut, depth=4, watermark=4, latency=SOON)
    sender = Sender(loop)
    qp = await loop.create(0, 1)
    first, begins = await loop.after_window(qp, 2000), []
    for k, holes in enumerate((range(0, abi.NODE_BODY_BITS, 2), (0, *range(1, abi.NODE_BODY_BITS, 2)), (0,))):
        begins.append(len(qp.todo))
        loop.link(qp, first + 400 * k, list(holes))
    loop.ring(qp, len(begins))
    await until(dut, lambda: loop.seen["prefetches"] and loop.idle)
    for begin in begins:
        sender.send_again(qp, *qp.todo[begin])
    await until(dut, lambda: loop.retired == len(begins))
    assert loop.seen["nodes_residue"] == 2


@cocotb.test(timeout_time=20, timeout_unit="us")
async def header_ahead_of_its_node_does_not_affect_the_head(dut):
    """With slack, a header for a node that may be cached beside the head waits for the node."""
    loop = await set_up(dut, depth=2, watermark=1, exact=False, slack=100, latency=(60, 80))
    sender, seen = Sender(loop), loop.seen
    loop.free = deque([*loop.free][::LINES])      # each node takes a separate read
    qp = await loop.create(0, 1)
    base = await loop.after_window(qp, 400)
    for k in range(3):
        loop.link(qp, base + 20 * k, [0, 2, 4])
    loop.ring(qp, 3)
    await cached(loop, 0, 1)
    for psn, rsn in [*list(qp.todo)[3:6], *list(qp.todo)[:3]]:
        sender.send_again(qp, psn, rsn)
    await until(dut, lambda: loop.retired == 2)
    assert seen["cache_misses"] and not seen["nodes_residue"]


@pytest.mark.parametrize("sim", SIMULATORS)
def test_nodes_of_many_lists_are_read(sim):
    simulate(WithQpTable(Adamap(MANY)), name="adamap_fetching", cases=__file__, sim=sim)
