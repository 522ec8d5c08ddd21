"""Tests of the counters: no event is lost at full rate."""

import gc
import random

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hdl.contract import abi
from weft.hdl.part.counter_ports import merged
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock

WIDTHS = {"tx_packets": 1, "rx_bytes": 14, "holes": 24, "drop_buffer_full": 1}
REFUSALS, READS = 3, 2


async def read(dut, port, index):
    getattr(dut, f"read__{port}__index").value = index
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    return int(getattr(dut, f"read__{port}__data").value)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def every_event_is_counted(dut):
    from weft.hdl.part.counters import Counters
    rng = random.Random(bench_seed())
    for _ in range(2):                      # the second time after a reset of the running block
        task = await start_clock(dut)
        expected = dict.fromkeys(abi.COUNTER_INDEX, 0)
        for cycle in range(1000):
            for name, width in WIDTHS.items():
                amount = (1 << width) - 1 if cycle < 500 else rng.getrandbits(width) * rng.getrandbits(1)
                getattr(dut, f"count_{name}").value = amount
                expected[name] += amount
            for k in range(REFUSALS):
                stb, reason = rng.getrandbits(1), rng.choice(list(abi.Reason))
                getattr(dut, f"drop__{k}__stb").value = stb
                getattr(dut, f"drop__{k}__reason").value = reason
                if stb and reason:
                    expected[f"drop_{reason.name.lower()}"] += 1
            await RisingEdge(dut.clk)
        for name in WIDTHS:
            getattr(dut, f"count_{name}").value = 0
        for reason in filter(None, abi.Reason):     # at full rate for a whole scan: the largest sum between two visits
            for k in range(REFUSALS):
                getattr(dut, f"drop__{k}__stb").value, getattr(dut, f"drop__{k}__reason").value = 1, reason
            await ClockCycles(dut.clk, 2 * len(abi.COUNTERS))
            expected[f"drop_{reason.name.lower()}"] += 2 * len(abi.COUNTERS) * REFUSALS
        for k in range(REFUSALS):
            getattr(dut, f"drop__{k}__stb").value = 0
        for _ in range(Counters.LAG):
            await RisingEdge(dut.clk)
        for name, index in abi.COUNTER_INDEX.items():
            assert await read(dut, rng.randrange(READS), index) == expected[name], name
        assert expected["holes"] > 1 << 32, "a carry into the high word"
        assert all(expected[f"drop_{r.name.lower()}"] for r in abi.Reason if r)
        task.cancel()


@pytest.mark.parametrize("sim", SIMULATORS)
def test_no_event_is_lost(sim):
    from weft.hdl.part.counters import Counters
    simulate(Counters(WIDTHS, drops=REFUSALS, reads=READS), name="counters", cases=__file__, sim=sim)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_unknown_counter_is_rejected():
    from weft.hdl.part.counters import Counters
    with pytest.raises(ValueError, match="unknown counter"):
        Counters({"tx_pakets": 1})
    gc.collect()  # collect the half-built block while its warning is ignored


def test_a_counter_has_one_source():
    assert merged({"holes": 24}, {"rx_bytes": 14, "reports": 1}) == {"holes": 24, "rx_bytes": 14, "reports": 1}
    with pytest.raises(ValueError, match="counted twice: rx_bytes"):
        merged({"rx_bytes": 14}, {"holes": 24}, {"rx_bytes": 1})
