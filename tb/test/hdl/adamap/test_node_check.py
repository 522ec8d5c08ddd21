"""Tests of the check of blocks from host memory."""

import random
from collections import deque

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl.adamap.prefetch.fetches import VERDICT, NodeCheck
from weft.hdl.contract import abi
from weft.model.functional.node import Node, choose_encoding, damage
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.test.hdl.adamap.node_damage import resealed

QPN, GENERATION = 0x12345, 7
LATENCY = 2


def nodes(rng):
    """Yield valid nodes of every encoding."""
    for holes in ([0], sorted({0, *rng.sample(range(1, 1 << 16), 19)}), list(range(64)), list(range(320)),
                  sorted({0, *rng.sample(range(1, 320), 150)})):
        yield Node(QPN, GENERATION, rng.getrandbits(32), rng.getrandbits(32), choose_encoding(holes), tuple(holes))


def cases(rng):
    """Yield ``(block, is bad)``."""
    for node in nodes(rng):
        block = node.pack(next_line=rng.getrandbits(58), next_phase=rng.getrandbits(1))
        assert damage(block) == 0
        yield block, False
        yield node.pack(), False        # the end of a list
        for bit in range(8 * abi.BLOCK_BYTES):      # any bit, also of the pointer
            yield (int.from_bytes(block, "little") ^ 1 << bit).to_bytes(abi.BLOCK_BYTES, "little"), True
        for field, values in {
            "qpn": [QPN ^ 1, 0], "generation": [GENERATION ^ 0x80], "count": [0, abi.NODE_HOLES_MAX + 1, 4095],
            "encoding": [0, *range(len(abi.Encoding) + 1, 16)],
        }.items():
            for value in values:
                yield resealed(block, **{field: value}), True
        most = abi.HOLES_MAX[node.encoding]
        yield resealed(block, count=most), False
        yield resealed(block, count=most + 1), True


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def only_valid_nodes_pass(dut):
    await start_clock(dut)
    dut.qpn.value, dut.generation.value = QPN, GENERATION
    rng, before, count, ended = random.Random(bench_seed()), deque(maxlen=LATENCY), 0, 0
    for block, bad in cases(rng):      # one per cycle
        dut.node.value = int.from_bytes(block, "little")
        await RisingEdge(dut.clk)
        if len(before) == LATENCY:
            asked, expected = before[0]
            ends = abi.NODE.unpack(asked).next_line == 0
            verdict = VERDICT.from_bits(int(dut.o.value))
            assert (verdict.bad, verdict.ends) == (expected, ends), asked.hex()
            count, ended = count + 1, ended + ends
        before.append((block, bad))
    assert count > 5 * 512 and ended == 5


@pytest.mark.parametrize("sim", SIMULATORS)
def test_only_valid_nodes_pass(sim):
    simulate(NodeCheck(), name="node-check", cases=__file__, sim=sim)
