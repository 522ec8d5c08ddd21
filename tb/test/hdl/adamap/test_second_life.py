"""Tests of a reused QPN: the Adamap subsystem keeps no state of the incarnation before, and nothing rings for it."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.adamap.closed_loop import MASK, room, set_up
from weft.tb.test.hdl.adamap.peer import Sender
from weft.tb.test.hdl.adamap.test_lists import until
from weft.tb.test.hdl.adamap.test_recovery import query

NODES = 3
BEHIND = 400


async def live_and_die(world):
    """Destroy a QP with nodes in the cache and an open one in the builder."""
    qp = await world.create(0, 1)
    base = await world.behind_window(qp, BEHIND)
    for k in range(NODES):
        world.link(qp, base + 20 * k, [0, 2, 4])
    world.ring(qp, NODES)
    world.request(qp, psn=qp.next_psn + 1)
    while (await query(world.dut, 0))[1:] != [1, 0, NODES]:
        await RisingEdge(world.dut.clk)
    await world.port.pass_cycles(50)    # until the hole reaches the builder
    assert not world.idle
    await world.destroy(qp)
    await world.port.pass_cycles(50)
    assert world.idle and not world.seen["nodes_sealed"], "the builder keeps a node of the dead"


@cocotb.test(timeout_time=100, timeout_unit="us")
async def a_life_leaves_nothing_behind(dut):
    world = await set_up(dut, depth=4, watermark=4, latency=(5, 20))
    seen = world.seen
    await live_and_die(world)
    qp = await world.create(0, 2)
    assert await query(dut, 0) == [qp.next_psn, 0, 0, 0], "nodes of the life before are cached"

    base, reads = await world.behind_window(qp, BEHIND), seen["prefetches"]
    world.port.link(0, 1, NODES, 0)
    world.port.cum(0, 1, qp.next_psn)
    await world.port.pass_cycles(50)
    assert (await query(dut, 0))[2:] == [0, 0] and seen["prefetches"] == reads, "nodes of the life before are linked"
    world.request(qp, psn=base + 1)
    await until(dut, lambda: not qp.in_flight)
    assert seen["verdict LATE"] == 1, "the life before acknowledges"

    world.request(qp, psn=qp.next_psn + 1, ack_req=1)
    await until(dut, lambda: qp.todo)
    Sender(world).send_again(qp, *qp.todo[0])
    await until(dut, lambda: world.retired)
    assert seen["nodes_sealed"] == 1 and qp.lost == qp.filled == {qp.next_psn & MASK}
    assert not seen["nodes_residue"] and not len(world.port.errors)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_a_life_leaves_nothing_behind(sim):
    simulate(room(), name="adamap", cases=__file__, sim=sim)
