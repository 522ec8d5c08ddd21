"""Tests of the matcher at its limits: rates, full queues, a small cache, and simultaneous events."""

from collections import Counter
from itertools import product

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from weft.hdl.adamap.match.match_entry import SHARE
from weft.hdl.adamap.match.retire import OUTSTANDING, REPORTS
from weft.hdl.contract import abi
from weft.model.functional.node import Node
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.adamap.matcher_traffic import PARAMS, QPS, Bench, list_node, subsystem


@cocotb.test(timeout_time=40, timeout_unit="us")
async def finished_head_frees_space_for_the_next_node(dut):
    """The successor of a finished head is not retired with open holes."""
    bench = await Bench.start(dut)
    for distance in range(12):
        await bench.set(slack=40, depth=2, watermark=2)
        one = bench.lists.lists[0]
        for _ in range(3):
            bench.link(0, list_node(one, 0, 5))
        await bench.cached(one, 2)
        headers = [bench.header(0, psn, rsn) for psn, rsn in bench.todo[0]]
        bench.ready += headers[:2]
        while bench.ready:
            await bench.edge
        await ClockCycles(dut.clk, distance + 1)
        bench.ready.append(headers[4])
        await bench.drain()
        assert one.left == 1 and bench.seen["OK"] == 3 * (distance + 1)
        bench.end([0])


@cocotb.test(timeout_time=40, timeout_unit="us")
async def depth_may_be_lowered(dut):
    """A header for a later node reaches it although the list holds more nodes than the new depth."""
    bench = await Bench.start(dut)
    await bench.set(slack=40, depth=4, watermark=4)
    one = bench.lists.lists[0]
    for _ in range(5):
        bench.link(0, list_node(one, 0, 5))
    await bench.cached(one, 3)
    bench.lists.depth = dut.prefetch_depth.value = 1
    bench.ready.append(bench.header(0, *bench.todo[0][-1]))
    await bench.drain()
    assert one.left == 4 and bench.seen["OK"] == 1


@cocotb.test(timeout_time=40, timeout_unit="us")
async def a_header_per_cycle(dut):
    """A header takes five cycles from input to result, and two more for each further node that it passes over."""
    bench = await Bench.start(dut)
    asked = 0
    for skipped, more in ((), 0), ((19, 39), 0), ((0, 5, 7), 0), (range(20, 40), 2), ((*range(18, 40), 45), 2):
        await bench.set(slack=1, depth=4, watermark=4)
        one, ok = bench.lists.lists[1], bench.seen["OK"]
        for _ in range(3):
            bench.link(1, list_node(one, *range(20)))
        await bench.cached(one, 3)
        await ClockCycles(dut.clk, 10)      # until the prefetcher wakes up
        headers = [bench.header(1, psn, rsn) for k, (psn, rsn) in enumerate(bench.todo[1]) if k not in skipped]
        bench.ready += headers
        while not int(dut.i__valid.value):
            await bench.edge
        judged = [int(dut.judged.value)]
        while sum(judged) < len(headers):
            await bench.edge
            judged.append(int(dut.judged.value))
        assert judged == [0] * 6 + [*judged[6:]] and len(judged) == 6 + len(headers) + more
        await bench.drain()
        assert bench.seen["OK"] == ok + len(headers)
        asked += one.left
        assert bench.prefetch.asked == {1: asked}       # once for each node that left
        bench.end([1])
    assert bench.seen["cache_misses"] == 0 and bench.seen["cache_hits"] == bench.seen["OK"]


@cocotb.test(timeout_time=40, timeout_unit="us")
async def waiting_headers_leave_space_for_other_lists(dut):
    bench = await Bench.start(dut)
    await bench.set(slack=1, depth=4, watermark=1)
    bench.prefetch.on = False
    for qpn in range(QPS):
        bench.link(qpn, list_node(bench.lists.lists[qpn], *range(20)))
    dut.share_en.value, waiting, seen = 1, Counter(), Counter()
    for k in range(PARAMS.match_queue):
        qpn = bench.rng.choice([0, 0, 0, 1, 2]) if k != 1 else 0
        bench.ready.append(bench.header(qpn, *bench.todo[qpn].popleft(), probe=k == 5))
        waiting[qpn] += 1
        await ClockCycles(dut.clk, 20)
        assert int(dut.space.value) == (k + 1 < PARAMS.match_queue)
        for asked in range(QPS):
            dut.share_index.value = asked
            await ClockCycles(dut.clk, 2)
            share = waiting[asked] < SHARE * (PARAMS.match_queue - k - 1)
            assert int(dut.share.value) == share, (asked, waiting, k)
            seen[share] += 1
    assert seen[0] and seen[1]
    bench.prefetch.on = True
    await bench.drain()
    assert bench.seen["OK"] == PARAMS.match_queue - 1 == bench.seen["cache_misses"]
    assert bench.seen["cache_hits"] == 0


@cocotb.test(timeout_time=40, timeout_unit="us")
async def new_headers_do_not_delay_waiting_ones(dut):
    bench = await Bench.start(dut)
    await bench.set(slack=1, depth=4, watermark=1)
    for qpn in (0, 1):
        bench.link(qpn, list_node(bench.lists.lists[qpn], *range(20)))
        await bench.cached(bench.lists.lists[qpn], 1 - qpn)
        bench.prefetch.on = False
    late, *_ = bench.todo[1]
    bench.ready += [bench.header(1, *late), *(bench.header(0, *bench.todo[0][0]) for _ in range(200))]
    await ClockCycles(dut.clk, 20)
    bench.prefetch.on = True
    await bench.drain()
    assert bench.lists.judged_at[1] + 100 < bench.lists.judged_at[0]
    assert (bench.seen["OK"], bench.seen["DUPLICATE"]) == (2, 199)


@cocotb.test(timeout_time=80, timeout_unit="us")
async def full_report_queue_delays_retirements(dut):
    """Finished nodes and nodes passed over: no retirement is lost, and headers wait for the report queue."""
    bench = await Bench.start(dut)
    for nodes, (slack, *holes) in product((5, 6, 7, 8, REPORTS + 4), ((40, 0), (1, 0), (1, 0, 5))):
        await bench.set(slack=slack, depth=4, watermark=4)
        one = bench.lists.lists[2]
        bench.lists.reports.pause = 1
        await ClockCycles(dut.clk, 2)
        for _ in range(nodes):
            bench.link(2, list_node(one, *holes))
        bench.ready += [bench.header(2, psn, rsn) for psn, rsn in list(bench.todo[2])[::len(holes)]]
        await ClockCycles(dut.clk, 25 * nodes)
        passed = nodes - (len(holes) > 1)
        assert min(passed, REPORTS - OUTSTANDING) <= one.left <= min(passed, REPORTS)
        bench.lists.reports.pause = 0
        await bench.drain()
        assert one.left == passed
        bench.end([2])


@cocotb.test(timeout_time=40, timeout_unit="us")
async def demand_during_a_retirement_is_not_lost(dut):
    """A header starts to wait while a node of another list leaves; both cause a demand."""
    bench = await Bench.start(dut)
    await bench.set(slack=40, depth=4, watermark=1)
    for distance in range(12):
        for qpn, holes in ((0, (0, 5)), (1, (0,))):
            one = bench.lists.lists[qpn]
            bench.link(qpn, list_node(one, *holes))
            bench.link(qpn, list_node(one, *holes))
            await bench.cached(one, 1)
        await ClockCycles(dut.clk, 10)
        bench.ready.append(bench.header(1, *bench.todo[1][0]))
        await ClockCycles(dut.clk, distance + 1)
        bench.ready.append(bench.header(0, *bench.todo[0][2]))
        await bench.drain()
        assert bench.seen["OK"] == 2 * (distance + 1)
        bench.end([0, 1])
        await bench.drain()


@cocotb.test(timeout_time=80, timeout_unit="us")
async def qpns_are_passed_on_complete(dut):
    """Row address, demands, orders and reports carry all bits of a QPN."""
    bench = await Bench.start(dut)
    seen = bench.seen
    for _ in range(8):
        bench.begin([bench.rng.getrandbits(22) << 2 | row for row in range(QPS)])
        await bench.set(slack=1, depth=4, watermark=1)
        bench.rate = 0.5
        for _ in range(200):
            await bench.edge
            bench.link_some(0.5)
        await bench.drain()
        bench.end(bench.lists.lists)
        await bench.drain()
    assert seen["OK"] > 100 and seen["cache_misses"] > 20 and seen["nodes_retired"] > 20 and seen["no place"], seen


@cocotb.test(timeout_time=20, timeout_unit="us")
async def header_waits_for_a_node_during_millions_of_packets(dut):
    """Its ticket is then far in the past, not in the future: retirements need not wait for as many packets again."""
    bench = await Bench.start(dut)
    await bench.set(slack=1, depth=4, watermark=1)
    one = bench.lists.lists[0]
    bench.prefetch.on = False
    bench.link(0, list_node(one, 0))
    bench.ready.append(bench.header(0, *bench.todo[0][0]))
    await ClockCycles(dut.clk, 20)
    for _ in range(6):                      # steps short enough that the placed ticket stays unambiguous
        bench.ticket += 1 << 21
        bench.lists.ticket = bench.ticket
        await ClockCycles(dut.clk, 5)
    assert bench.ticket - bench.lists.placed < 100
    bench.prefetch.on = True
    await bench.drain()
    assert one.left == 1 and bench.seen["OK"] == 1


class ShortNode(Node):
    """Node whose count is one less than the number of holes of its body."""

    def pack(self, **fields):
        return abi.NODE.pack(**{**vars(abi.NODE.unpack(super().pack(**fields))), "count": len(self.holes) - 1})


@cocotb.test(timeout_time=20, timeout_unit="us")
async def node_ends_with_its_count(dut):
    bench = await Bench.start(dut)
    await bench.set(slack=1, depth=4, watermark=1)
    one = bench.lists.lists[0]
    bench.link(0, ShortNode(0, one.generation, 1000, one.next_rsn, abi.Encoding.BITMAP, (0, 5, 7)))
    cached = one.order[0]
    cached.count = cached.left = 2
    await bench.cached(one, 1)
    bench.ready += [bench.header(0, 1000 + hole, cached.rsn + slot) for hole, slot in ((0, 0), (5, 1), (7, 1))]
    await bench.drain()
    assert (bench.seen["OK"], bench.seen["DUPLICATE"]) == (2, 1)
    assert one.left == 1 and cached.open == 1 << 7


@pytest.mark.parametrize("sim", SIMULATORS)
def test_matcher_at_its_limits(sim):
    simulate(subsystem(), name="adamap_matcher", cases=__file__, sim=sim)
