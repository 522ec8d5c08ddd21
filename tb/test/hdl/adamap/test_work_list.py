"""Tests of the prefetcher's work list: every entered QP comes out, whatever leaves in the same cycle."""

import os
import random

import cocotb
import pytest
from cocotb.triggers import FallingEdge

from weft.hdl.adamap.prefetch.work_list import WorkList
from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock

PARAMS = preset("test")
MANY, FEW = 64, 2   # places
SETTLED = 6     # cycles until an entered QP is offered, if none is before it


@cocotb.test(timeout_time=100, timeout_unit="us")
async def enter_while_leaving(dut):
    """Enter a QP in the cycle in which it leaves, and in both cycles after, the last one after its state was read."""
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
    """Runs of entries of few QPs against random taking: a QP entered after it last left comes out again."""
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


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def random_entries_of_many(dut):
    """Bursts of all QPs from all three inputs; in every pause all come out, none twice.

    QPs that found no free entry come out late.
    """
    rng = random.Random(bench_seed())
    await start_clock(dut)
    due, most, late = set(), 0, 0
    await FallingEdge(dut.clk)
    dut.forget_en.value = 1
    for qpn in range(PARAMS.qps):   # they are created: a reset does not clear the marks of earlier runs
        dut.forget_qpn.value = qpn
        await FallingEdge(dut.clk)
    for cycle in range(6000):
        phase = cycle % 120
        calm = phase >= 40
        dut.post_qpn.value = rng.randrange(PARAMS.qps)
        dut.post_stb.value = not calm and rng.random() < 0.5
        for k, chance in enumerate((0.3, 0.4)):
            getattr(dut, f"i__{k}__payload").value = rng.randrange(PARAMS.qps)
            getattr(dut, f"i__{k}__valid").value = not calm and rng.random() < chance
        dut.forget_qpn.value = forgotten = rng.randrange(PARAMS.qps)
        forget = phase == 100 and rng.random() < 0.3 and not due
        dut.forget_en.value = forget
        dut.o__ready.value = not forget and (calm or rng.random() < 0.2)
        await cocotb.triggers.ReadOnly()
        entered = set()
        if int(dut.post_stb.value):
            entered.add(int(dut.post_qpn.value))
        for k in range(2):
            if int(getattr(dut, f"i__{k}__valid").value) and int(getattr(dut, f"i__{k}__ready").value):
                entered.add(int(getattr(dut, f"i__{k}__payload").value))
        assert len(entered) <= 1
        if int(dut.o__valid.value) and int(dut.o__ready.value):
            left = int(dut.o__payload.value)
            assert left in due
            due = (due | entered) - {left}
            late += phase >= 40 + PARAMS.qps + SETTLED
        else:
            due |= entered
        if forget:
            due.discard(forgotten)
        assert not (int(dut.empty.value) and due - entered)
        most = max(most, len(due))
        if phase == 119:
            assert not due and int(dut.empty.value)
        await FallingEdge(dut.clk)
    assert most > 2 * FEW
    assert late > 50 if int(os.environ["PLACES"]) < PARAMS.qps else late == 0


@pytest.mark.parametrize("places", [MANY, FEW])
@pytest.mark.parametrize("sim", SIMULATORS)
def test_no_entered_qp_is_lost(sim, places):
    simulate(WorkList(PARAMS, places=places), name=f"adamap_work_list_{places}",
             cases=__file__, sim=sim, env={"PLACES": str(places)})
