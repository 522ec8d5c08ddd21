"""Tests of the Adamap subsystem with lists of a known shape: match rate, reads of several blocks, bitmaps."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge, Timer

from weft.hdl.contract import abi
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.adamap.closed_loop import PARAMS, set_up, subsystem
from weft.tb.test.hdl.adamap.peer import Sender
from weft.tb.test.hdl.adamap.test_recovery import query


async def until(dut, condition):
    while not condition():
        await RisingEdge(dut.clk)


def filled(loop):
    """Return True if a node was read and the subsystem is idle."""
    return loop.seen["prefetches"] and loop.idle


@cocotb.test(timeout_time=200, timeout_unit="us")
async def cached_node_is_matched_at_full_rate(dut):
    loop = await set_up(dut, node_age_ns=400, depth=4, watermark=4, latency=(5, 20))
    sender, seen = Sender(loop), loop.seen
    loop.port.hurry()
    qp = await loop.create(0, 1)
    loop.request(qp, psn=qp.next_psn + 120, ack_req=1)
    qp.next_psn += 121
    await until(dut, lambda: filled(loop))
    for psn, rsn in qp.todo:
        sender.send_again(qp, psn, rsn)
    await until(dut, lambda: seen["cache_hits"])
    start = loop.port.now
    await until(dut, lambda: seen["cache_hits"] >= 120)
    cycles = loop.port.now - start
    dut._log.info("119 matches in %d cycles", cycles)
    assert cycles <= 2 * 119 + 4
    await until(dut, lambda: not qp.nodes)
    assert seen["cache_misses"] == seen["match_stall_cycles"] == seen["nodes_residue"] == 0


@cocotb.test(timeout_time=200, timeout_unit="us")
async def list_without_its_node_leaves_space_for_others(dut):
    """A QP whose node is not read may fill most of the match queue; retransmissions of other QPs pass."""
    loop = await set_up(dut, depth=2, watermark=2, exact=False, latency=(5, 20))
    sender, seen = Sender(loop), loop.seen
    stuck, other = [await loop.create(qpn, 1) for qpn in range(2)]
    for reads, qp in enumerate((other, stuck), 1):
        first = await loop.after_window(qp, 400)
        if qp is stuck:
            loop.latency = (20000, 20000)      # no node is read from now on
        loop.link(qp, first, list(range(0, 36, 2)))
        loop.ring(qp)
        while seen["prefetches"] < reads:
            await RisingEdge(dut.clk)
        await Timer(400, "ns")

    async def send(qp, times):
        for psn, rsn in list(qp.todo) * times:
            sender.send_again(qp, psn, rsn)
        await sender.judged(qp)

    await send(stuck, 2)
    full = seen["verdict UNMATCHED"]
    assert full > 10 and seen["verdict MATCH"] > 8
    await send(other, 1)
    assert seen["verdict UNMATCHED"] == full
    await until(dut, lambda: seen["cache_hits"] == len(other.todo))


@cocotb.test(timeout_time=400, timeout_unit="us")
async def lists_that_all_wait_share_the_cache(dut):
    """Every list waits for a node after its cached ones, and none can give an entry: heads retire early."""
    depth, nodes = 4, 6
    loop = await set_up(dut, depth=depth, watermark=depth, exact=False, slack=100, latency=(5, 20))
    sender, seen = Sender(loop), loop.seen
    qps = [await loop.create(qpn, 1) for qpn in range(PARAMS.qps)]
    assert len(qps) * depth > PARAMS.cache_entries
    for qp in qps:
        first = await loop.after_window(qp, 400)
        for k in range(nodes):
            loop.link(qp, first + 20 * k, [0, 2, 4])
        loop.ring(qp, nodes)
    while sum([(await query(dut, qp.qpn))[3] for qp in qps]) < PARAMS.cache_entries:
        pass
    for qp in qps:
        sender.send_again(qp, *qp.todo[-1])
    await until(dut, lambda: seen["cache_misses"] == len(qps))
    await until(dut, lambda: not int(dut.count_match_stall_cycles.value))
    assert seen["nodes_residue"] > len(qps) and not any(seen[reason.name] for reason in abi.Reason)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def consecutive_blocks_are_read_at_once(dut):
    """Nodes in consecutive blocks are fetched by one read.

    Blocks after a piece are read and ignored, but never blocks after the end of an extent.
    """
    loop = await set_up(dut, depth=4, watermark=1, latency=(60, 80))
    sender, seen = Sender(loop), loop.seen
    loop.free.clear()
    small, ends = loop.memory.small, [first + count for first, count in loop.memory.extents]
    loop.free += [*small[1:10], *range(ends[1] - 7, ends[1]), *range(ends[0] - 16, ends[0])]
    qp = await loop.create(0, 1)
    count = 20
    first = await loop.after_window(qp, 20 * count)
    for k in range(count):
        loop.link(qp, first + 20 * k, list(range(0, 20, 2)))
    loop.ring(qp, count)
    while qp.todo:
        sender.retransmit(qp, 0.0)
        await Timer(2, "us")
    await sender.settle([qp])
    dut._log.info("%d nodes in %d reads, %s", count, seen["prefetches"], dict(seen))
    assert seen["lines in one read"] == 4 and 4 * seen["prefetches"] <= 3 * qp.linked


@cocotb.test(timeout_time=200, timeout_unit="us")
async def bitmap_matches_holes_by_psn(dut):
    """A bitmap matches by PSN, whatever the RSN is. A closed hole is a duplicate; a PSN outside is not in the node."""
    loop = await set_up(dut, depth=4, watermark=4, latency=(5, 20))
    sender, seen, rng = Sender(loop), loop.seen, loop.rng
    qp = await loop.create(0, 1)
    first = await loop.after_window(qp, 2000)
    holes = sorted(rng.sample(range(1, abi.NODE_BODY_BITS), 150))
    loop.link(qp, first, [0, *holes])
    loop.ring(qp)
    sent, rsns = zip(*qp.todo, strict=True)
    closed = [first + k for k in range(1, abi.NODE_BODY_BITS) if k not in holes]
    outside = [first + k for k in (abi.NODE_BODY_BITS, 512, 1999)]
    packets = [*sent[:-1], *rng.sample(closed, 20), *outside, sent[0], sent[1]]
    rng.shuffle(packets)
    await until(dut, lambda: filled(loop))
    for psn in [*packets, sent[-1]]:
        sender.send_again(qp, psn, rng.choice(rsns))
    await until(dut, lambda: not qp.nodes)
    assert qp.filled == set(sent) and seen["nodes_residue"] == 0 and seen["BITMAP"] == 1
    assert (seen["DUPLICATE"], seen["NOT_IN_NODE"]) == (22, 3)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def bitmap_retires_with_its_open_holes(dut):
    """Passed over when its first hole was filled, at once or cycles later.

    The two bitmaps together have every bit set.
    """
    loop = await set_up(dut, depth=4, watermark=4, latency=(5, 20))
    sender, seen = Sender(loop), loop.seen
    for qpn, pause in enumerate((0, 10)):
        qp = await loop.create(qpn, 1)
        first, places = await loop.after_window(qp, 2000), []
        for k, holes in enumerate((range(0, abi.NODE_BODY_BITS, 2), (0, *range(1, abi.NODE_BODY_BITS, 2)), (0,))):
            places.append(len(qp.todo))
            loop.link(qp, first + 400 * k, list(holes))
        reads, wanted = seen["prefetches"], loop.retired + len(places)
        loop.ring(qp, len(places))
        await until(dut, lambda reads=reads: seen["prefetches"] > reads and loop.idle)
        for place in places:
            sender.send_again(qp, *qp.todo[place])
            if pause:
                await sender.judged(qp)
                await loop.port.pass_cycles(pause)
        await until(dut, lambda wanted=wanted: loop.retired == wanted)
        assert seen["nodes_residue"] == 2 * (qpn + 1) <= seen["BITMAP"]


@cocotb.test(timeout_time=100, timeout_unit="us")
async def gap_is_a_hole_from_the_reorder_distance_on(dut):
    loop = await set_up(dut, depth=4, watermark=4, latency=(5, 20))
    for log2 in range(PARAMS.window_bits.bit_length()):
        distance, holes = 1 << log2, loop.seen["holes"]
        loop.port.configure(reorder_distance=distance)
        qp = await loop.create(0, log2)
        for ahead in range(1, distance):
            loop.request(qp, psn=qp.next_psn + ahead)
        await Sender(loop).judged(qp)
        await loop.port.pass_cycles(5)
        assert loop.seen["holes"] == holes, distance
        loop.request(qp, psn=qp.next_psn + distance)
        await until(dut, lambda holes=holes: loop.seen["holes"] > holes)
        assert loop.seen["holes"] == holes + 1
        await loop.destroy(qp)


@cocotb.test(timeout_time=400, timeout_unit="us")
async def bitmaps_are_filled_while_others_are_matched(dut):
    """Fills of nodes and marks of bitmaps share a memory."""
    loop = await set_up(dut, depth=4, watermark=4, latency=(5, 60))
    sender, seen, rng = Sender(loop), loop.seen, loop.rng
    loop.port.hurry()
    qp = await loop.create(0, 1)
    count = 10
    first = await loop.after_window(qp, 400 * count)
    for k in range(count):
        loop.link(qp, first + 400 * k, [0, *sorted(rng.sample(range(1, abi.NODE_BODY_BITS), rng.randint(70, 200)))])
    loop.ring(qp, count)
    for line, node in list(qp.nodes):
        while line not in loop.read:
            await RisingEdge(dut.clk)
        await Timer(80, "ns")                                   # until it is filled
        for psn in node.psns:
            await until(dut, lambda: loop.port.asked <= 10)
            sender.send_again(qp, psn, node.rsn)
    await until(dut, lambda: not qp.nodes)
    assert qp.filled == {psn for psn, _ in qp.todo} and seen["nodes_residue"] == 0
    assert seen["BITMAP"] == count and seen["cache_hits"] > 70 * count


@pytest.mark.parametrize("sim", SIMULATORS)
def test_lists_of_known_shape_are_matched(sim):
    simulate(subsystem(), name="adamap", cases=__file__, sim=sim)
