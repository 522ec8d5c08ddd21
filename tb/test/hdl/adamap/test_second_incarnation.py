"""Tests of a reused QPN: the Adamap subsystem keeps no state of the incarnation before, and nothing rings for it."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.adamap.closed_loop import MASK, set_up, subsystem
from weft.tb.test.hdl.adamap.peer import Sender
from weft.tb.test.hdl.adamap.test_lists import until
from weft.tb.test.hdl.adamap.test_recovery import query

NODES = 3
BEHIND = 400


async def churn(loop):
    """Destroy a QP with nodes in the cache and an open one in the builder."""
    qp = await loop.create(0, 1)
    base = await loop.after_window(qp, BEHIND)
    for k in range(NODES):
        loop.link(qp, base + 20 * k, [0, 2, 4])
    loop.ring(qp, NODES)
    loop.request(qp, psn=qp.next_psn + 1)
    while (await query(loop.dut, 0))[1:] != [1, 0, NODES]:
        await RisingEdge(loop.dut.clk)
    await loop.port.pass_cycles(50)    # until the hole reaches the builder
    assert not loop.idle
    await loop.destroy(qp)
    await loop.port.pass_cycles(50)
    assert loop.idle and not loop.seen["nodes_sealed"], "the builder keeps a node of the dead"


@cocotb.test(timeout_time=100, timeout_unit="us")
async def incarnation_leaves_no_state(dut):
    loop = await set_up(dut, depth=4, watermark=4, latency=(5, 20))
    seen = loop.seen
    await churn(loop)
    qp = await loop.create(0, 2)
    assert await query(dut, 0) == [qp.next_psn, 0, 0, 0], "nodes of the earlier incarnation are cached"

    base, reads = await loop.after_window(qp, BEHIND), seen["prefetches"]
    loop.port.link(0, 1, NODES, 0)
    loop.port.cum(0, 1, qp.next_psn)
    await loop.port.pass_cycles(50)
    assert (await query(dut,
                        0))[2:] == [0, 0] and seen["prefetches"] == reads, "nodes of the earlier incarnation are linked"
    loop.request(qp, psn=base + 1)
    await until(dut, lambda: not qp.in_flight)
    assert seen["verdict LATE"] == 1, "the incarnation before acknowledges"

    loop.request(qp, psn=qp.next_psn + 1, ack_req=1)
    await until(dut, lambda: qp.todo)
    Sender(loop).send_again(qp, *qp.todo[0])
    await until(dut, lambda: loop.retired)
    assert seen["nodes_sealed"] == 1 and qp.lost == qp.filled == {qp.next_psn & MASK}
    assert not seen["nodes_residue"] and not len(loop.port.errors)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_incarnation_leaves_no_state(sim):
    simulate(subsystem(), name="adamap", cases=__file__, sim=sim)
