"""The prefetcher's work list: what is entered comes out, whatever leaves in the same cycle."""

import random

import cocotb
import pytest
from cocotb.triggers import FallingEdge

from weft.hdl.adamap.work_list import WorkList
from weft.hdl.params import preset

from .clock import start_clock
from .sim import SIMULATORS, bench_seed, simulate

PARAMS = preset("test")
SETTLED = 6     # cycles after which an entered QP is offered, if none is before it


@cocotb.test(timeout_time=100, timeout_unit="us")
async def enter_while_leaving(dut):
    """Entered in the cycle it leaves and in both cycles after: the last of these is after its state was read."""
    await start_clock(dut)
    await FallingEdge(dut.clk)
    dut.post_qpn.value = 3
    dut.post_stb.value = 1
    await FallingEdge(dut.clk)
    dut.post_stb.value = 0
    while not int(dut.o__valid.value):
        await FallingEdge(dut.clk)
    dut.o__ready.value = 1
    dut.post_stb.value = 1
    await FallingEdge(dut.clk)
    dut.o__ready.value = 0
    for _ in range(2):
        await FallingEdge(dut.clk)
    dut.post_stb.value = 0
    for _ in range(SETTLED):
        await FallingEdge(dut.clk)
    assert int(dut.o__valid.value) and int(dut.o__payload.value) == 3


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def random_entries(dut):
    """Runs of entries of few QPs against random taking: a QP entered after it left last comes out again."""
    rng = random.Random(bench_seed())
    await start_clock(dut)
    due, together = set(), 0
    await FallingEdge(dut.clk)
    for cycle in range(4000):
        calm = cycle % 80 >= 60
        dut.post_qpn.value = rng.randrange(2)
        dut.post_stb.value = not calm and rng.random() < 0.7
        dut.o__ready.value = 1 if calm else rng.random() < 0.4
        await cocotb.triggers.ReadOnly()
        entered = int(dut.post_qpn.value) if int(dut.post_stb.value) else None
        left = int(dut.o__payload.value) if int(dut.o__valid.value) and int(dut.o__ready.value) else None
        together += left is not None and left == entered
        due = (due | {entered}) - {left, None}
        if cycle % 80 == 79:
            assert not due
        await FallingEdge(dut.clk)
    assert together > 20


@pytest.mark.parametrize("sim", SIMULATORS)
def test_no_entered_qp_is_forgotten(sim):
    simulate(WorkList(PARAMS), name="adamap_work_list", bench="weft.tb.test_adamap_work_list", sim=sim)
