"""Which blocks from host memory are taken as nodes."""

import random
from collections import deque

import cocotb
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from weft.hdl import abi
from weft.hdl.adamap.node_check import BlockCheck, NodeCheck
from weft.hdl.layouts import NODE
from weft.model.functional.node import Node, choose_encoding, damage
from weft.tb.blocks.adamap.node_damage import resealed
from weft.tb.flow.clock import start_clock
from weft.tb.flow.simulate import SIMULATORS, bench_seed, simulate

QPN, GENERATION = 0x12345, 7
LATENCY = 3


class Checks(wiring.Component):
    """Both checks of a block, one behind the other."""

    node: In(NODE)
    qpn: In(24)
    generation: In(8)
    follows: In(1)
    bad: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.block = block = BlockCheck()
        m.submodules.check = check = NodeCheck()
        stages = [Signal(data.StructLayout({"node": NODE, "follows": 1}), name=f"stage{k}") for k in range(LATENCY - 1)]
        m.d.sync += [stages[0].node.eq(self.node), stages[0].follows.eq(self.follows), stages[1].eq(stages[0])]
        m.d.comb += [
            block.node.eq(self.node), check.unsound.eq(block.unsound), check.node.eq(stages[1].node),
            check.follows.eq(stages[1].follows), check.qpn.eq(self.qpn), check.generation.eq(self.generation),
            self.bad.eq(check.bad),
        ]
        return m


def nodes(rng):
    """Sound nodes of every encoding."""
    for holes in ([0], sorted({0, *rng.sample(range(1, 1 << 16), 19)}), list(range(64)), list(range(320)),
                  sorted({0, *rng.sample(range(1, 320), 150)})):
        yield Node(QPN, GENERATION, rng.getrandbits(32), rng.getrandbits(32), choose_encoding(holes), tuple(holes))


def cases(rng):
    """(block, whether its RSN follows, whether it is bad)."""
    for node in nodes(rng):
        block = node.pack(next_line=rng.getrandbits(58), next_phase=rng.getrandbits(1))
        assert damage(block) == 0
        yield block, True, False
        yield block, False, True
        for bit in range(8 * abi.BLOCK_BYTES):      # whatever is hit, the pointer too
            yield (int.from_bytes(block, "little") ^ 1 << bit).to_bytes(abi.BLOCK_BYTES, "little"), True, True
        for field, values in {
            "qpn": [QPN ^ 1, 0], "generation": [GENERATION ^ 0x80], "count": [0, abi.NODE_HOLES_MAX + 1, 4095],
            "encoding": [0, *range(len(abi.Encoding) + 1, 16)],
        }.items():
            for value in values:
                yield resealed(block, **{field: value}), True, True
        most = abi.HOLES_MAX[node.encoding]
        yield resealed(block, count=most), True, False
        yield resealed(block, count=most + 1), True, True


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def only_sound_nodes_pass(dut):
    await start_clock(dut)
    dut.qpn.value, dut.generation.value = QPN, GENERATION
    rng, before, count = random.Random(bench_seed()), deque(maxlen=LATENCY), 0
    for block, follows, bad in cases(rng):      # one per cycle
        dut.node.value, dut.follows.value = int.from_bytes(block, "little"), int(follows)
        await RisingEdge(dut.clk)
        if len(before) == LATENCY:
            assert bool(dut.bad.value) == before[0][1], before[0][0].hex()
            count += 1
        before.append((block, bad))
    assert count > 5 * 512


@pytest.mark.parametrize("sim", SIMULATORS)
def test_only_sound_nodes_pass(sim):
    simulate(Checks(), name="node-check", cases=__file__, sim=sim)
