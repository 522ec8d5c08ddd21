"""Tests of the extent lookup: extents of any size and position, also overlapping."""

import random
from collections import Counter

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl.adamap.cache.cached import ExtentLookup, null_block, stray
from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock

PARAMS = preset("test").with_(knit_extents=4, block_bits=10)
MOST = 1 << PARAMS.extent_blocks_log2
LATENCY = 3


def number(extents, line):
    """Return the expected block number."""
    numbers = [k << PARAMS.extent_blocks_log2 | line - base for k, (base, lines) in enumerate(extents)
               if base <= line < base + lines]
    return min(numbers[-1], stray(PARAMS)) if numbers else stray(PARAMS)


def drawn(rng):
    """Return random extents, and lines inside and around them."""
    near = rng.choice((rng.getrandbits(58), rng.randrange(3 * MOST), (1 << 58) - rng.randrange(1, 3 * MOST)))
    extents = [(max(0, min((1 << 58) - 1, near + rng.randrange(-MOST, MOST))),
                rng.choice((0, 1, rng.randrange(MOST), MOST))) for _ in range(PARAMS.knit_extents)]
    base, lines = rng.choice(extents)
    ends = [base + rng.choice((-1, 0, lines - 1, lines, rng.randrange(MOST), MOST)) for _ in range(30)]
    return extents, [line for line in (0, (1 << 58) - 1, *ends) if 0 <= line < 1 << 58]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_line_is_found(dut):
    """One line per cycle; extents change between bursts."""
    await start_clock(dut)
    rng, seen = random.Random(bench_seed()), Counter()
    for _ in range(200):
        extents, lines = drawn(rng)
        for k, (base, size) in enumerate(extents):
            getattr(dut, f"extent_base__{k}").value, getattr(dut, f"extent_lines__{k}").value = base, size
        await RisingEdge(dut.clk)
        for at in range(len(lines) + LATENCY):
            dut.line.value = lines[min(at, len(lines) - 1)]
            await RisingEdge(dut.clk)
            if at >= LATENCY:
                expected = number(extents, lines[at - LATENCY])
                assert int(dut.o.value) == expected != null_block(PARAMS), (extents, lines[at - LATENCY])
                seen["stray" if expected == stray(PARAMS) else "block"] += 1
                seen["twice"] += sum(base <= lines[at - LATENCY] < base + size for base, size in extents) > 1
    assert min(seen.values()) > 100, seen


@pytest.mark.parametrize("sim", SIMULATORS)
def test_every_line_is_found(sim):
    simulate(ExtentLookup(PARAMS), name="pointed", cases=__file__, sim=sim)
