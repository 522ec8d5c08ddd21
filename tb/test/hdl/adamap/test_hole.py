"""Tests of the check that a PSN is the hole in a slot of a node: every encoding, against the holes of the node."""

import random
from collections import Counter

import cocotb
import pytest
from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl.adamap.cache.cached import NODE_BASE, CachedNode
from weft.hdl.adamap.match.hole import HoleCheck
from weft.hdl.contract import abi
from weft.model.functional.node import encode_body, runs_of
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import pack

NODES = 150
SPAN = 1 << abi.OFFSET_BITS


def some_holes(rng, encoding):
    """Return offsets of a node's holes, up to the number and distance that its encoding allows."""
    if encoding is abi.Encoding.LIST:
        span, others = rng.choice([30, 1000, SPAN]), rng.choice([0, rng.randrange(abi.LIST_HOLES), abi.LIST_HOLES - 1])
        return sorted({0, *rng.sample(range(1, span), others)})
    if encoding is abi.Encoding.BITMAP:
        return sorted({0, *rng.sample(range(1, abi.NODE_BODY_BITS), rng.randrange(abi.NODE_BODY_BITS))})
    holes, at = [], 0
    for _ in range(rng.choice([rng.randint(1, abi.RUNS_MAX), abi.RUNS_MAX])):
        length = rng.choice([1, 2, rng.randint(1, 30)])
        holes += range(at, at + length)
        at += length + rng.choice([1, 2, rng.randint(1, SPAN // abi.RUNS_MAX // 2)])
    return holes[:abi.HOLES_MAX[encoding]]


def questions(rng, encoding, holes):
    """Yield ``(slot, offset)``: holes, their neighbours, holes of other slots, and offsets outside a run.

    The latter are as far outside the run as the slot is outside the slots of the run.
    """
    slots = {0, len(holes) - 1, *(rng.randrange(len(holes)) for _ in range(12))}
    for slot in slots:
        hole, first = holes[slot], 0
        yield slot, hole
        yield slot, hole + rng.choice([-1, 1])
        yield slot, rng.choice(holes)
        yield slot, hole ^ 1 << rng.randrange(32)
        for start, length in runs_of(holes):
            if encoding is abi.Encoding.RUNS:
                yield slot, start + slot - first
            first += length


def answer(encoding, holes, slot, offset):
    """Return ``(matches, bit of the pending holes)``."""
    if encoding is abi.Encoding.BITMAP:
        return offset < abi.NODE_BODY_BITS, offset % 512
    return holes[slot] == offset, slot


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def holes_are_distinguished_from_other_psns(dut):
    await start_clock(dut)
    rng, seen, asked, before = random.Random(bench_seed()), Counter(), None, None
    for _ in range(NODES):
        encoding, base = rng.choice(list(abi.Encoding)), rng.choice([0, (1 << 32) - 100, rng.getrandbits(32)])
        holes = some_holes(rng, encoding)
        packed = pack(NODE_BASE, base_psn=base, encoding=encoding.value)
        node = pack(CachedNode, encoding=encoding.value, body=encode_body(encoding, holes))
        for slot, offset in questions(rng, encoding, holes):      # one per cycle
            offset %= 1 << 32
            dut.base.value, dut.slot.value, dut.psn.value = packed, slot, (base + offset) % (1 << 32)
            matches, bit = answer(encoding, holes, slot, offset)
            if asked is not None:
                dut.node.value = asked[0]
            await ReadOnly()
            if asked is not None:
                assert int(dut.bit.value) == asked[1]
            if before is not None:
                assert bool(dut.matches.value) == before, (encoding, holes, slot, offset)
            await RisingEdge(dut.clk)
            before = asked and asked[2]
            asked = node, bit, matches
            seen[encoding, matches] += 1
    assert len(seen) == 2 * len(abi.Encoding) and min(seen.values()) > 50, seen


@pytest.mark.parametrize("sim", SIMULATORS)
def test_holes_are_distinguished_from_other_psns(sim):
    simulate(HoleCheck(), name="hole", cases=__file__, sim=sim)
