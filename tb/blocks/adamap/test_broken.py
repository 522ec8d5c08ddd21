"""Lists that the Adamap room cannot trust."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl import abi
from weft.tb.blocks.adamap.closed_loop import PARAMS, room, set_up
from weft.tb.blocks.adamap.node_damage import resealed
from weft.tb.flow.simulate import SIMULATORS, simulate

OUTSIDE = 0x1040
DAMAGE = {
    "BAD_POINTER": lambda block: resealed(block, next_line=OUTSIDE),
    "a flipped bit": lambda block: bytes([block[0] ^ 0x10]) + block[1:],
    "qpn": lambda block: resealed(block, qpn=0x77),
    "generation": lambda block: resealed(block, generation=0x77),
    "count": lambda block: resealed(block, count=0),
    "many": lambda block: resealed(block, count=abi.NODE_HOLES_MAX + 1),
    "encoding": lambda block: resealed(block, encoding=7),
    "runs": lambda block: resealed(block, encoding=abi.Encoding.RUNS, count=abi.RUNS_HOLES + 1),
    "rsn": lambda block: resealed(block, rsn=5),
    "DMA_ERROR": lambda block: None,
}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def broken_list_stops_its_qp(dut):
    world = await set_up(dut, node_age_ns=400, depth=2, watermark=2, exact=False, latency=(5, 20))
    for turn, (name, damaged) in enumerate(DAMAGE.items(), 1):
        qp = await world.create(turn % PARAMS.qps, turn)
        if name == "rsn":           # only what follows a cached node can be seen to go on wrongly
            world.link(qp, 90, [0, 1])
            world.ring(qp)
        line = qp.spare
        world.link(qp, 100, [0, 1])
        world.blocks[line] = damaged(world.blocks[line])
        world.ring(qp, 2 if name == "BAD_POINTER" else 1)       # what the pointer shows is wanted
        assert int(await world.port.errors.recv()) == qp.qpn
        while sum(count for event, count in world.seen.items() if event.startswith("QP_ERROR")) < turn:
            await RisingEdge(dut.clk)
        await world.destroy(qp)
    for reason, times in {"BAD_POINTER": 1, "BAD_NODE": len(DAMAGE) - 2, "DMA_ERROR": 1}.items():
        assert world.seen[f"QP_ERROR {reason}"] == world.seen[f"broken {reason}"] == times


@pytest.mark.parametrize("sim", SIMULATORS)
def test_broken_list_stops_its_qp(sim):
    simulate(room(), name="adamap", cases=__file__, sim=sim)
