"""Tests of the status block: the last state always reaches the host."""

import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.test.hdl.pcie.dma_write_sink import DmaWriteSink

ADDRESS = 0x12_3456_7880


@cocotb.test(timeout_time=100, timeout_unit="us")
async def status_follows_the_rings(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    dma = DmaWriteSink(dut, dut.clk, pause=0.5, rng=rng)
    cons = [0] * len(abi.HOST_TO_CARD)
    ports = [getattr(dut, f"cons__{k}") for k in range(len(cons))]
    changes = 0

    ports[0].value = 3
    for _ in range(10):
        await RisingEdge(dut.clk)
    assert not int(dut.o_request__valid.value), "no address, no write"
    cons[0] = 3
    dut.address.value = ADDRESS

    seen = [[0] for _ in cons]
    for _ in range(60):
        for _ in range(rng.randint(1, 6)):
            k = rng.randrange(len(cons))
            cons[k] = (cons[k] + rng.choice([1, rng.randrange(1, 1 << 16)])) & 0xFFFF
            seen[k].append(cons[k])
            changes += 1
            ports[k].value = cons[k]
            await RisingEdge(dut.clk)
        if rng.random() < 0.5:
            for _ in range(3):
                await RisingEdge(dut.clk)
            while not int(dut.idle.value):
                await RisingEdge(dut.clk)
            for _ in range(3):
                await RisingEdge(dut.clk)
            assert dma.groups[-1][1] == abi.STATUS_BLOCK.pack(
                **{f"{ring.name.lower()}_cons": cons[k] for k, ring in enumerate(abi.HOST_TO_CARD)})
    assert 10 < len(dma.groups) < changes, "changes are coalesced"
    assert all(pieces == [(ADDRESS, 64)] for pieces, _ in dma.groups)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_status_block_follows_the_rings(sim):
    from weft.hdl.ring.status import StatusBlock
    simulate(StatusBlock(preset("test")), name="ring_status", cases=__file__, sim=sim)
