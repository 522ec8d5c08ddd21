"""Tests of headers without match queue entry: their holes stay open, and the nodes that they pass over retire."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.adamap.matcher_traffic import PARAMS, QPS, Bench, list_node, subsystem

HOLES = 8       # of each node


async def sent(bench):
    """Wait until all scheduled headers were sent."""
    while bench.ready or bench.showing:
        await bench.edge
    await ClockCycles(bench.dut.clk, 3)


async def full_queue(dut, waiting=(4, 4, 4, 4)):
    bench = await Bench.start(dut)
    await fill(bench, 1, waiting)
    return bench


async def fill(bench, slack, waiting=(4, 4, 4, 4)):
    """Link two nodes in host memory to each list, and let headers wait for them.

    ``waiting`` is the number of headers of each list; together they fill the match queue.
    """
    bench.windowed = False
    await bench.set(slack=slack, depth=4, watermark=1)
    bench.prefetch.on = False
    for qpn in range(QPS):
        for _ in range(2):
            bench.link(qpn, list_node(bench.lists.lists[qpn], *range(HOLES)))
    bench.ready += [bench.header(qpn, *bench.todo[qpn][k]) for qpn, n in enumerate(waiting) for k in range(n)]
    await sent(bench)
    bench.windowed = True
    await ClockCycles(bench.dut.clk, 3)
    assert not int(bench.dut.space.value)


async def unmatched(bench, *headers):
    bench.ready += headers
    await sent(bench)


async def settled(bench):
    bench.prefetch.on = True
    await bench.drain()
    return [bench.lists.lists[qpn].left for qpn in range(QPS)]


@cocotb.test(timeout_time=40, timeout_unit="us")
async def each_list_has_an_order_while_entries_are_free(dut):
    """Without a free order, the nodes of a list stay until a probe passes them over."""
    bench = await full_queue(dut)
    bench.overfull = True
    for at in (HOLES, HOLES - 1, HOLES, 2):
        await unmatched(bench, *(bench.header(qpn, *bench.todo[qpn][at]) for qpn in range(QPS)))
    assert len(bench.lists.ordered) == PARAMS.unmatched_lists == QPS - 1
    assert await settled(bench) == [1] * (QPS - 1) + [0]
    assert bench.seen["OK"] == PARAMS.match_queue, "the headers that waited came first"
    await unmatched(bench, bench.header(QPS - 1, 0, bench.todo[QPS - 1][HOLES][1], probe=True))
    assert await settled(bench) == [1] * QPS


@cocotb.test(timeout_time=40, timeout_unit="us")
async def probe_without_an_entry_is_an_order(dut):
    bench = await full_queue(dut)
    for qpn, at in enumerate((HOLES, HOLES - 1, -1)):
        await unmatched(bench, bench.header(qpn, 0, bench.todo[qpn][at][1] + (at < 0), probe=True))
    assert await settled(bench) == [1, 0, 2, 0]


@cocotb.test(timeout_time=40, timeout_unit="us")
async def order_waits_for_its_packet_only(dut):
    """However many packets are placed before the headers of its list have left."""
    bench = await full_queue(dut)
    await unmatched(bench, *(bench.header(qpn, *bench.todo[qpn][HOLES]) for qpn in range(QPS - 1)))
    for _ in range(8):
        bench.lists.ticket += 25
        bench.lists.placed = bench.ticket = bench.lists.ticket
        await ClockCycles(dut.clk, 3)
    assert await settled(bench) == [1, 1, 1, 0]


@cocotb.test(timeout_time=40, timeout_unit="us")
async def order_does_not_affect_the_next_incarnation(dut):
    """The QP is created again with the same RSNs, and a header of it waits before the order is due."""
    bench = await full_queue(dut, waiting=(1, 5, 5, 5))
    first = bench.todo[0][0][1]
    await unmatched(bench, bench.header(0, *bench.todo[0][HOLES]))
    bench.end([0])
    while bench.prefetch.orders or bench.prefetch.busy or not bench.seen["STALE_GENERATION"]:
        await bench.edge
    one = bench.lists.lists[0]
    one.next_rsn = first
    for _ in range(2):
        bench.link(0, list_node(one, *range(HOLES)))
    hole, *others = bench.todo[0]
    await unmatched(bench, bench.header(0, *hole))
    assert [*bench.lists.ordered] == [(0, (one.generation - 1) % 256)], "the new list has an order"
    assert (await settled(bench))[0] == 0 and bench.seen["destroyed with an order"]
    ok = bench.seen["OK"]
    for hole in others:
        await unmatched(bench, bench.header(0, *hole))
        await bench.drain()
    assert one.left == 2 and bench.seen["OK"] == ok + len(others)


@cocotb.test(timeout_time=40, timeout_unit="us")
async def order_uses_no_entry_of_headers(dut):
    """The order waits outside the match queue for the headers of its list."""
    bench = await Bench.start(dut)
    await bench.set(slack=1, depth=4, watermark=1)
    bench.prefetch.on, bench.windowed = False, True
    for qpn in range(QPS):
        bench.link(qpn, list_node(bench.lists.lists[qpn], *range(20)))
    free = 3
    holes = [(0, bench.todo[0][k]) for k in range(PARAMS.match_queue - free - QPS + 1)]
    holes += [(qpn, bench.todo[qpn][0]) for qpn in range(1, QPS)]
    for qpn, hole in holes:     # one by one: no header comes when packets 128 younger are placed
        await unmatched(bench, bench.header(qpn, *hole))
    await unmatched(bench, bench.header(0, *bench.todo[0][19]))
    assert [*bench.lists.ordered] == [(0, bench.lists.lists[0].generation)], "the list had its share"
    await ClockCycles(dut.clk, 20)
    await unmatched(bench, *(bench.header(3, *bench.todo[3][k + 1]) for k in range(free)))
    assert await settled(bench) == [1, 0, 0, 0] and bench.seen["OK"] == PARAMS.match_queue


@cocotb.test(timeout_time=40, timeout_unit="us")
async def order_leaves_the_last_entry_to_a_reserved_header(dut):
    """Another list's header leaves while the new header is shown, and an order is due."""
    bench = await Bench.start(dut)
    for distance in range(16):
        await fill(bench, 1, (0, 13, 2, 1))
        await unmatched(bench, bench.header(0, *bench.todo[0][HOLES]))
        hole = bench.todo[2][2]
        bench.end([3])
        await ClockCycles(dut.clk, distance)
        await unmatched(bench, bench.header(2, *hole))
        bench.seen["place found"] += not any(qpn == 2 for qpn, _ in bench.lists.ordered)
        assert (await settled(bench))[0] == 1
        bench.end(range(QPS))
        await settled(bench)
    assert 0 < bench.seen["place found"] < 16


@cocotb.test(timeout_time=40, timeout_unit="us")
async def order_passes_over_nodes_beyond_the_slack(dut):
    """A header that may still come finds its node."""
    bench = await Bench.start(dut)
    for slack in 2, 3, 5:
        for beyond in -1, 0, 1:
            await fill(bench, slack)
            await unmatched(bench, bench.header(0, *bench.todo[0][HOLES - 1 + slack + beyond]))
            assert (await settled(bench))[0] == (beyond >= 0)
            ok = bench.seen["OK"]
            await unmatched(bench, bench.header(0, *bench.todo[0][HOLES - 1]))
            await settled(bench)
            assert bench.seen["OK"] == ok + (beyond < 0)
            bench.end(range(QPS))
            await settled(bench)


@cocotb.test(timeout_time=40, timeout_unit="us")
async def old_header_passes_over_nothing_with_any_slack(dut):
    bench = await Bench.start(dut)
    for slack, age in ((1 << 31, 100), ((1 << 23) - 1, 5), (1 << 22, 1 << 22), (1, 1 << 22), (1, 1)):
        await fill(bench, slack)
        psn, rsn = bench.todo[0][0]
        await unmatched(bench, bench.header(0, psn, rsn - age))
        assert await settled(bench) == [0] * QPS
        bench.end(range(QPS))
        await settled(bench)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_headers_without_a_match_queue_entry(sim):
    simulate(subsystem(), name="adamap_matcher", cases=__file__, sim=sim)
