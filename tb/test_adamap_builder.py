"""The node builder against the functional model."""

import os
import random
from collections import Counter
from dataclasses import replace

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hdl import abi
from weft.hdl.adamap.builder import NodeBuilder
from weft.hdl.layouts import HoleRun, Report
from weft.hdl.params import NODE_ENCODINGS, preset
from weft.model.functional.builder import NodeBuilder as Model
from weft.model.functional.node import Node
from weft.tb.clock import start_clock
from weft.tb.sim import SIMULATORS, bench_seed, simulate
from weft.tb.stream import StreamSink, StreamSource

PARAMS = replace(preset("test"), qps=8, builder_slots=4)


def run_payload(qpn, generation, psn, length, seal):
    return HoleRun.const({"qpn": qpn, "generation": generation, "psn": psn % (1 << 32), "length": length, "seal": seal,
                          "ticket": 1}).as_bits()


def node_of(report):
    block = (report & ((1 << 512) - 1)).to_bytes(64, "little")
    assert abi.REPORT_NODE.unpack(block).kind == abi.ReportKind.NODE
    assert Report.const({"ticket": 255}).as_bits() >> 512 == 255
    assert report >> 512 == 77
    return Node.unpack(block)


def runs(rng, style, psn):
    """Random runs (psn, length, seal) that rise from ``psn``."""
    for _ in range(rng.randint(5, 60)):
        gap, length = {
            "sparse": (rng.randint(1, 6000), 1),
            "burst": (rng.randint(1, 9000), rng.randint(1, 60)),
            "dense": (rng.choice([1, 1, 2]), rng.choice([1, 1, 2])),
            "close": (0, rng.randint(1, 20)),
            "huge": (rng.choice([0, 5, 70000]), rng.randint(300, 1500)),
            "edge": (rng.choice([65535 - 318, 65536, 65530, 315, 3]), rng.choice([1, 2, 319, 320, 321])),
        }[style]
        psn += gap
        yield psn, length, int(rng.random() < 0.03)
        psn += length


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def random_runs(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    dut.node_age_ns.value = (1 << 32) - 1
    dut.placed_ticket.value = 77
    pause = rng.choice([0.0, 0.5])
    source = StreamSource(dut, "i", dut.clk, pause=pause, rng=random.Random(rng.random()))
    sink = StreamSink(dut, "o", dut.clk, pause=pause, rng=random.Random(rng.random()))
    encodings = tuple(abi.Encoding[name] for name in os.environ["ENCODINGS"].split())
    model, seen = Model(4, encodings), Counter()
    at = {q: rng.choice([0, rng.getrandbits(32), (1 << 32) - 4000]) for q in range(8)}
    wanted = [*encodings, "full", "evicted", "discard"]
    for turn, style in enumerate(["sparse", "burst", "dense", "close", "huge", "edge"] * 10):
        if turn >= 18 and all(seen[k] for k in wanted):
            break
        generation = rng.randrange(256)
        crowd = rng.sample(range(8), rng.choice([1, 1, 1, 2, 6]))
        streams = {q: list(runs(rng, style, at[q])) for q in crowd}
        expected = []
        discards = 0
        while any(streams.values()):
            q = rng.choice([q for q in crowd if streams[q]])
            psn, length, seal = streams[q].pop(0)
            at[q] = psn + length
            before = len(model.open)
            sealed = model.run(q, generation, psn, length, seal)
            seen["evicted"] += before == 4 and any(n.qpn != q for n in sealed)
            expected += sealed
            source.send_nowait(run_payload(q, generation, psn, length, seal))
            if rng.random() < 0.02:
                seen["discard"] += (q, generation) in model.open
                discards += 1
                model.run(q, generation, 0, 0, 0)
                source.send_nowait(run_payload(q, generation, 0, 0, 0))
        for q in crowd:
            expected += model.run(q, generation, 0, 0, 1)
            source.send_nowait(run_payload(q, generation, 0, 0, 1))
        got = []
        for want in expected:
            got.append(node_of(int(await sink.recv())))
            assert got[-1] == want, f"{style}: {got[-1]}, expected {want}"
            seen[want.encoding] += 1
            seen["full"] += len(want.holes) == abi.NODE_HOLES_MAX
    assert all(seen[k] for k in wanted), seen
    await ClockCycles(dut.clk, 50)
    assert len(sink) == 0


@cocotb.test(timeout_time=200, timeout_unit="us")
async def old_node_is_sealed(dut):
    await start_clock(dut)
    source = StreamSource(dut, "i", dut.clk)
    sink = StreamSink(dut, "o", dut.clk)
    dut.placed_ticket.value = 77
    dut.node_age_ns.value = 2000
    now = (1 << 32) - 3000
    dut.time_ns.value = now
    await source.send(run_payload(3, 9, 100, 2, 0))
    opened = None
    for cycle in range(1000):
        await RisingEdge(dut.clk)
        now += 4
        dut.time_ns.value = now
        if len(sink) and opened is None:
            opened = cycle * 4
    assert opened is not None and 2000 <= opened <= 2100, opened
    assert node_of(int(await sink.recv())).psns == [100, 101]
    assert int(dut.idle.value) == 1


def simulate_with(sim, encodings):
    simulate(NodeBuilder(replace(PARAMS, node_encodings=encodings)), name="adamap_builder",
             bench="weft.tb.test_adamap_builder", sim=sim, env={"ENCODINGS": " ".join(encodings)})


@pytest.mark.parametrize("sim", SIMULATORS)
def test_nodes_hold_every_hole_in_the_best_encoding(sim):
    simulate_with(sim, NODE_ENCODINGS)


def test_builder_of_raw_bitmaps():
    simulate_with("icarus", ("BITMAP",))
