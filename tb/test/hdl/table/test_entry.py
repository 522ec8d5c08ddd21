"""Tests of the table memories: every reader sees a write from the next cycle on."""

import gc
import random

import cocotb
import pytest
from amaranth.hdl import Fragment
from cocotb.triggers import RisingEdge

from weft.hdl.contract.params import preset
from weft.hdl.table.entry import EntryTable
from weft.hdl.table.kinds import MR_TABLE, PAGE_TABLE, QP_TABLE
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock

PARAMS = preset("test")
DEPTH, WIDTH, READERS = 8, 16, 3


@cocotb.test(timeout_time=100, timeout_unit="us")
async def every_reader_sees_the_entries(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    table, due, collisions = [0] * DEPTH, [0] * READERS, 0
    held = [False] * READERS
    for _ in range(3000):
        index = rng.randrange(DEPTH)
        write = rng.random() < 0.3
        value = rng.getrandbits(WIDTH)
        dut.write__en.value, dut.write__index.value, dut.write__entry.value = int(write), index, value
        for k in range(READERS):
            en, at = rng.random() < 0.7, rng.randrange(DEPTH)
            getattr(dut, f"read__{k}__en").value = int(en)
            getattr(dut, f"read__{k}__index").value = at
            if en:
                due[k], held[k] = table[at], True
                collisions += write and at == index
        if write:
            table[index] = value
        await RisingEdge(dut.clk)
        await cocotb.triggers.ReadOnly()
        for k in range(READERS):
            if held[k]:
                assert int(getattr(dut, f"read__{k}__entry").value) == due[k]
        await cocotb.triggers.NextTimeStep()
    assert collisions > 50


@pytest.mark.parametrize("sim", SIMULATORS)
def test_readers_see_written_entries(sim):
    simulate(EntryTable(depth=DEPTH, shape=WIDTH, readers=READERS), name="table_entry", cases=__file__, sim=sim)


def test_tables_have_the_sizes_of_the_preset():
    for table, depth in ((QP_TABLE, PARAMS.qps), (MR_TABLE, PARAMS.mrs), (PAGE_TABLE, PARAMS.ptes)):
        instance = table.memory(PARAMS, readers=1)
        Fragment.get(instance, None)
        assert instance.depth == depth


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_bad_parameters_are_rejected():
    with pytest.raises(ValueError, match="power of two"):
        EntryTable(depth=12, shape=8, readers=1)
    with pytest.raises(ValueError, match="reader"):
        EntryTable(depth=8, shape=8, readers=0)
    gc.collect()  # Amaranth warns of a component that is never built, when it is collected
