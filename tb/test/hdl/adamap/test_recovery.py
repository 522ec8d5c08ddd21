"""Tests of the whole Adamap subsystem in a closed loop: losses, a knitting driver, retransmissions, recovery."""

import os
import random
from dataclasses import replace

import cocotb
import pytest
from cocotb.triggers import RisingEdge, with_timeout

from weft.hdl.adamap.adamap import Adamap
from weft.tb.sim.block.adamap.with_qp_table import WithQpTable
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.test.hdl.adamap.closed_loop import PARAMS, set_up, subsystem
from weft.tb.test.hdl.adamap.connection import MASK
from weft.tb.test.hdl.adamap.peer import Sender
from weft.tb.test.volume import volume

WANTED = ("nodes_residue", "cache_misses", "DUPLICATE", "NOT_IN_NODE", "LIST", "verdict LATE", "begins again",
          "read again for its pointer")


async def lose_some(loop, sender, qps):
    """Send originals of some QPs, with retransmissions and probes of others in between."""
    rng = loop.rng
    for _ in range(6):
        sender.originals(rng.choice(qps), rng.randint(10, 60))
        other = rng.choice(qps)
        if other.todo:
            sender.retransmit(other, 0.2)
        if rng.random() < 0.3:
            sender.probe(rng.choice(qps))
        while loop.port.asked > 20:
            await RisingEdge(loop.dut.clk)


async def renew(loop, sender, gone):
    """Destroy a QP during recovery, and return the QP that replaces it."""
    if gone.todo:
        sender.retransmit(gone, 0.0)
    await sender.judged(gone)
    await with_timeout(loop.destroy(gone), 12, "us")
    return await loop.create(gone.qpn, (gone.generation + 1) % 256)


async def query(dut, qpn):
    """Return the result of QP_QUERY: base of the window, holes, nodes linked ahead, nodes cached."""
    await RisingEdge(dut.clk)       # a caller may have waited for a time that ends before or after the edge
    dut.qp_control__query_qpn.value = qpn
    dut.qp_control__query_stb.value = 1
    await RisingEdge(dut.clk)
    dut.qp_control__query_stb.value = 0
    while not int(dut.qp_control__query_done.value):
        await RisingEdge(dut.clk)
    return [int(dut.qp_control__query_result.value) >> 32 * k & 0xFFFFFFFF for k in range(4)]


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def every_hole_is_filled(dut):
    rng = random.Random(bench_seed())
    exact = bool(int(os.environ["EXACT"]))
    loop = await set_up(
        dut, rng=rng, exact=exact, slack=1 if exact else rng.choice([3, 8, 100]), node_age_ns=3000,
        depth=rng.choice([1, 2, 4]), watermark=rng.choice([1, 2, 4]), latency=rng.choice([(5, 20), (60, 300)]))
    sender = Sender(loop)
    qps = [await loop.create(qpn, rng.randrange(256)) for qpn in range(PARAMS.qps)]
    turns = int(os.environ["TURNS"])
    for turn in range(10 * turns):
        if turn >= turns and all(loop.seen[name] for name in WANTED):
            break
        await lose_some(loop, sender, qps)
        if turn % 4 == 2:
            place = rng.randrange(len(qps))
            qps[place] = await renew(loop, sender, qps[place])
        if turn % 3 == 1:
            await sender.settle(qps, loss=0.1)
    for qp in qps:
        sender.probe(qp)
    await sender.settle(qps)
    for qp in qps:
        assert qp.lost == qp.filled, f"QP {qp.qpn}: {sorted(qp.lost ^ qp.filled)[:20]}"
        assert await query(dut, qp.qpn) == [qp.next_psn & MASK, len(qp.lost), 0, 0]
    assert sorted(loop.free) == sorted(loop.memory.lines), "blocks were lost or doubled"
    dut._log.info("%s", dict(loop.seen))
    assert all(loop.seen[name] for name in WANTED) and len(loop.port.errors) == 0


@pytest.mark.parametrize("sim", SIMULATORS)
def test_recovery_agrees_with_the_model(sim):
    simulate(subsystem(), name="adamap", cases=__file__, sim=sim,
             env={"EXACT": "1", "TURNS": "3" if sim == "icarus" else volume("10", "30")})


def test_recovery_with_slack_and_a_tiny_cache():
    tiny = replace(PARAMS, builder_slots=2, cache_entries=4, prefetch_depth_max=2)
    simulate(WithQpTable(Adamap(tiny)), name="adamap_tiny", cases=__file__, sim="verilator",
             env={"EXACT": "0", "TURNS": volume("6", "15")})
