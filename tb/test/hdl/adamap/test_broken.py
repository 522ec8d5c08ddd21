"""Tests of corrupted lists in the Adamap subsystem."""

from functools import partial

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl.contract import abi
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.adamap.closed_loop import PARAMS, set_up, subsystem
from weft.tb.test.hdl.adamap.node_damage import flipped, resealed

DAMAGE = {
    "a flipped bit": lambda block: bytes([block[0] ^ 0x10]) + block[1:],
    "count": lambda block: resealed(block, count=0),
    "many": lambda block: resealed(block, count=abi.NODE_HOLES_MAX + 1),
    "encoding": lambda block: resealed(block, encoding=7),
    "runs": lambda block: resealed(block, encoding=abi.Encoding.RUNS, count=abi.RUNS_HOLES + 1),
    "DMA_ERROR": lambda block: None,
}
FIELDS = ("next_line", "qpn", "generation", "rsn")      # every bit of them is checked
LANES = 4       # QPs at once: lists without waiting headers leave a part of the cache free


def damages():
    """Yield ``(name, damage)`` of all kinds."""
    yield from DAMAGE.items()
    for name in FIELDS:
        for bit in range(abi.NODE.by_name[name].width):
            yield name, partial(flipped, name=name, bit=bit)


def break_list(loop, qp, name, damage):
    """Link three nodes, of which the second is damaged or its pointer is wrong; return the reason to be reported.

    The RSN of a node after a cached one is checked, too. A block at a wrong address is not a node of the list.
    """
    loop.link(qp, 90, [0, 1])
    loop.link(qp, 100, [0, 1])
    line = qp.nodes[-1][0]
    loop.link(qp, 110, [0, 1])
    loop.blocks[line] = block = damage(loop.blocks[line])
    loop.ring(qp, 3)
    if block is None:
        return "DMA_ERROR"
    astray = name == "next_line" and not loop.memory.inside(abi.NODE.unpack(block).next_line)
    return "BAD_POINTER" if astray else "BAD_NODE"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def broken_list_stops_its_qp(dut):
    loop = await set_up(dut, depth=4, watermark=4, exact=False, latency=(5, 20))
    cases, due = list(damages()), dict.fromkeys(("BAD_POINTER", "BAD_NODE", "DMA_ERROR"), 0)
    loop.rng.shuffle(cases)
    for first in range(0, len(cases), LANES):
        qps = []
        for turn, case in enumerate(cases[first:first + LANES], first):
            qps.append(await loop.create(turn % PARAMS.qps, turn % 256))
            due[break_list(loop, qps[-1], *case)] += 1
        assert {int(await loop.port.errors.recv()) for _ in qps} == {qp.qpn for qp in qps}
        while any(loop.seen[f"QP_ERROR {reason}"] < times for reason, times in due.items()):
            await RisingEdge(dut.clk)
        for qp in qps:
            await loop.destroy(qp)
    assert due["BAD_POINTER"] > 30 and due["DMA_ERROR"] == 1 and not len(loop.port.errors)
    for reason, times in due.items():
        assert loop.seen[f"QP_ERROR {reason}"] == loop.seen[f"broken {reason}"] == times


@pytest.mark.parametrize("sim", SIMULATORS)
def test_broken_list_stops_its_qp(sim):
    simulate(subsystem(), name="adamap", cases=__file__, sim=sim)
