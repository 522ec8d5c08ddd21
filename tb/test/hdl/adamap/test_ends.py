"""Tests of the ends of lists in the Adamap subsystem: restart elsewhere, growth during a read, premature ends."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl.contract import abi
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.adamap.closed_loop import PARAMS, set_up, subsystem
from weft.tb.test.hdl.adamap.node_damage import resealed
from weft.tb.test.hdl.adamap.peer import Sender
from weft.tb.test.hdl.adamap.test_lists import until
from weft.tb.test.hdl.adamap.test_recovery import query

READ = 40       # cycles


async def all_retire(loop, sender, qp):
    """Wait until every hole is filled and the list is empty."""
    while qp.todo:
        sender.send_again(qp, *qp.todo.popleft())
    await until(loop.dut, lambda: not qp.nodes)


async def broken(loop, qp, reason):
    """Wait until a list is abandoned for this reason."""
    assert int(await loop.port.errors.recv()) == qp.qpn
    await until(loop.dut, lambda: loop.seen[f"QP_ERROR {reason}"])


@cocotb.test(timeout_time=200, timeout_unit="us")
async def empty_list_restarts_at_any_block(dut):
    """An empty list holds no block: each time it restarts at the doorbell's block, in either extent."""
    loop = await set_up(dut, depth=4, watermark=4, latency=(5, READ))
    sender, lines = Sender(loop), loop.memory.lines
    qp = await loop.create(0, 1)
    base = await loop.after_window(qp, 800)
    for turn in range(12):
        assert len(loop.free) == len(lines), "an empty list holds a block"
        loop.rng.shuffle(loop.free)
        count = 1 + turn % 3
        for k in range(count):
            loop.link(qp, base + 60 * turn + 20 * k, [0, 2])
        loop.ring(qp, count)
        await all_retire(loop, sender, qp)
        assert await query(dut, 0) == [qp.next_psn % (1 << 32), 0, 0, 0]
    assert loop.seen["begins again"] == 11 and not len(loop.port.errors)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def nodes_linked_ahead_are_counted(dut):
    """The count includes the nodes of all doorbells, also of consecutive ones. No node arrives meanwhile."""
    loop = await set_up(dut, depth=1, watermark=1, latency=(100_000, 100_000))
    count = {(await loop.create(qpn, qpn)).qpn: 0 for qpn in range(2)}
    block, rng = loop.memory.number(loop.free[0]), loop.rng
    while max(count.values()) < 1 << 17:
        times = rng.choice([1, 2, 80])
        for _ in range(times):
            qpn, nodes = rng.choice([0, 0, 0, 1]), rng.choice([255, 255, rng.randrange(1, 256)])
            loop.port.link(qpn, qpn, nodes, block)
            count[qpn] += nodes
        await loop.port.pass_cycles(times + 5)
        assert [(await query(dut, qpn))[2] for qpn in count] == [*count.values()]


@cocotb.test(timeout_time=400, timeout_unit="us")
async def list_grows_in_every_cycle_of_a_read(dut):
    """A node is linked after the last one at every cycle from the doorbell on until long after the fill."""
    loop = await set_up(dut, depth=4, watermark=4, latency=(READ, READ))
    sender, seen, again = Sender(loop), loop.seen, set()
    for qpn, wait in enumerate(range(2 * READ)):
        qp = await loop.create(qpn % PARAMS.qps, qpn % 256)
        base = await loop.after_window(qp, 400)
        before = seen["read again for its pointer"]
        loop.link(qp, base, [0])
        loop.ring(qp)
        await loop.port.pass_cycles(wait)
        loop.link(qp, base + 20, [0])
        loop.ring(qp)
        while (await query(dut, qp.qpn))[2:] != [0, 2]:
            await RisingEdge(dut.clk)
        if seen["read again for its pointer"] > before:
            again.add(wait)
        await all_retire(loop, sender, qp)
        await loop.destroy(qp)
    assert again and not seen["nodes_residue"] and not len(loop.port.errors)
    first, last = min(again), max(again)
    dut._log.info("the last node was read again when it grew %d to %d cycles after its doorbell", first, last)
    assert 0 < first and last - first < READ // 2, sorted(again)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def list_that_ends_before_its_last_node_is_broken(dut):
    """The list stops whatever nodes follow: a read is not repeated for a missing pointer."""
    loop = await set_up(dut, depth=4, watermark=4, exact=False, latency=(5, READ))
    for count, at in ((2, 0), (4, 1), (4, 2)):
        loop.seen.clear()
        qp = await loop.create(0, 10 * count + at)
        for k in range(count):
            loop.link(qp, 100 + 20 * k, [0])
        line = qp.nodes[at][0]
        loop.blocks[line] = resealed(loop.blocks[line], next_line=0, next_adjacent=0)
        loop.ring(qp, count)
        await broken(loop, qp, "BAD_POINTER")
        assert loop.seen["prefetches"] <= count + 1
        await loop.destroy(qp)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def doorbell_with_an_invalid_pointer_breaks_its_list(dut):
    loop = await set_up(dut, depth=4, watermark=4, exact=False, latency=(5, READ))
    (_, first), (_, second) = loop.memory.extents
    bits = loop.memory.number_bits
    past = abi.LINK_DOORBELL.by_name["block"].width
    for turn, block in enumerate((first, (1 << bits) + second, (2 << bits) - 1, (2 << bits) - 2, 1 << bits + 1,
                                  (1 << past) - 1)):
        loop.seen.clear()
        qp = await loop.create(turn, 1)
        loop.port.link(turn, 1, 1, block)
        await broken(loop, qp, "BAD_POINTER")
        assert not loop.seen["prefetches"]
        await loop.destroy(qp)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_lists_end_at_the_node_of_the_driver(sim):
    simulate(subsystem(), name="adamap", cases=__file__, sim=sim)
