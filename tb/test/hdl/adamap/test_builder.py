"""Tests of the node builder against the functional model."""

import os
import random
from collections import Counter
from dataclasses import replace

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hdl.adamap.builder.builder import NodeBuilder
from weft.hdl.contract import abi
from weft.hdl.contract.params import NODE_ENCODINGS, preset
from weft.hdl.part.layouts import HoleRun, Report
from weft.model.functional.builder import NodeBuilder as Model
from weft.model.functional.node import Node, fits, runs_of
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.stream import StreamSink, StreamSource

PARAMS = replace(preset("test"), qps=8, builder_slots=4)
MOST_HOLES = {abi.Encoding.LIST: abi.LIST_HOLES, abi.Encoding.RUNS: abi.RUNS_HOLES,
              abi.Encoding.BITMAP: abi.NODE_HOLES_MAX}


def run_payload(qpn, generation, psn, length, seal):
    return HoleRun.const({"qpn": qpn, "generation": generation, "psn": psn % (1 << 32), "length": length, "seal": seal,
                          "ticket": 1}).as_bits()


def node_of(report):
    block = (report & ((1 << 512) - 1)).to_bytes(64, "little")
    assert abi.REPORT_NODE.unpack(block).kind == abi.ReportKind.NODE
    assert Report.const({"ticket": 255}).as_bits() >> 512 == 255
    assert report >> 512 == 0
    return Node.unpack(block)


def runs(rng, style, psn):
    """Return random runs (psn, length, seal) that rise from ``psn``."""
    for _ in range(rng.randint(70, 85) if style == "bitmap" else rng.randint(5, 60)):
        gap, length = {
            "sparse": (rng.randint(1, 6000), 1),
            "burst": (rng.choice([0, rng.randint(1, 9000)]), rng.randint(1, rng.choice([8, 60]))),
            "dense": (rng.choice([1, 1, 2]), rng.choice([1, 1, 2])),
            "close": (0, rng.randint(1, 20)),
            "huge": (rng.choice([0, 5, 70000]), rng.randint(300, 1500)),
            "bitmap": (rng.randint(1, 5), rng.choice([1, 1, 1, 2])),      # all over it
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
    pause = rng.choice([0.0, 0.5])
    source = StreamSource(dut, "i", dut.clk, pause=pause, rng=random.Random(rng.random()))
    sink = StreamSink(dut, "o", dut.clk, pause=pause, rng=random.Random(rng.random()))
    encodings = tuple(abi.Encoding[name] for name in os.environ["ENCODINGS"].split())
    model, seen, discards = Model(4, encodings), Counter(), 0
    cocotb.start_soon(count_discarded(dut, seen))
    at = {q: rng.choice([0, rng.getrandbits(32), (1 << 32) - 4000]) for q in range(8)}
    wanted = [*encodings, "full", "evicted", "discard"]
    most = max(MOST_HOLES[encoding] for encoding in encodings)
    for turn, style in enumerate(["sparse", "burst", "dense", "close", "huge", "edge", "bitmap"] * 10):
        if turn >= 21 and all(seen[k] for k in wanted):
            break
        generation = rng.randrange(256)
        crowd = rng.sample(range(8), rng.choice([1, 1, 1, 2, 6]))
        streams = {q: list(runs(rng, style, at[q])) for q in crowd}
        expected = []
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
            seen["full"] += len(want.holes) == most
    assert all(seen[k] for k in wanted), seen
    while seen["discarded"] < discards:     # the last runs of a discarded node come after the last expected one
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, 50)
    assert len(sink) == 0 and seen["discarded"] == discards > 0


async def count_discarded(dut, seen):
    while True:
        await RisingEdge(dut.clk)
        seen["discarded"] += int(dut.discarded.value)


def late_runs(rng, wanted):
    """Return runs (offset, length) of one node: those that make it a BITMAP, then some that begin at ``wanted`` bits.

    A bit before each of the latter is no hole: a run that sets bits before its first one is noticed.
    """
    prefix = [(3 * k, 2) for k in range(abi.RUNS_MAX + 1)]
    late, at = [], 3 * len(prefix)
    while offsets := [offset for offset in sorted(wanted) if offset >= at]:
        late.append((offsets[0], min(rng.randint(1, 20), abi.NODE_HOLES_MAX - offsets[0])))
        wanted.discard(offsets[0])
        at = sum(late[-1]) + rng.randint(3, 30)
    return prefix + late


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def runs_begin_at_every_bit_of_a_bitmap(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    dut.node_age_ns.value = (1 << 32) - 1
    source, sink = StreamSource(dut, "i", dut.clk), StreamSink(dut, "o", dut.clk)
    encodings = tuple(abi.Encoding[name] for name in os.environ["ENCODINGS"].split())
    model, seen = Model(4, encodings), Counter()
    wanted = set(range(3 * (abi.RUNS_MAX + 1), abi.NODE_HOLES_MAX))
    while wanted:
        psn, expected = rng.getrandbits(32), []
        for offset, length in [*late_runs(rng, wanted), (0, 0)]:
            run = (3, 9, psn + offset, length, length == 0)
            expected += model.run(*run)
            source.send_nowait(run_payload(*run))
        for want in expected:
            got = node_of(int(await sink.recv()))
            assert got == want, f"{got}, expected {want}"
            seen[want.encoding] += 1
    assert abi.Encoding.BITMAP not in encodings or seen[abi.Encoding.BITMAP] > 10, seen


@cocotb.test(timeout_time=200, timeout_unit="us")
async def old_node_is_sealed(dut):
    await start_clock(dut)
    source = StreamSource(dut, "i", dut.clk)
    sink = StreamSink(dut, "o", dut.clk)
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


@cocotb.test(timeout_time=20, timeout_unit="us")
async def node_age_is_limited(dut):
    await start_clock(dut)
    source, sink = StreamSource(dut, "i", dut.clk), StreamSink(dut, "o", dut.clk)
    dut.node_age_ns.value = random.Random(bench_seed()).choice(
        [abi.NODE_AGE_MAX_NS, abi.NODE_AGE_MAX_NS + 1, 1 << 30, (1 << 32) - 1])
    began = dut.time_ns.value = 0x3_FFFF_FF00
    await source.send(run_payload(3, 9, 100, 2, 0))
    for early in (abi.NODE_AGE_MAX_NS // 2, abi.NODE_AGE_MAX_NS - 4):
        await ClockCycles(dut.clk, 20)
        dut.time_ns.value = began + early
    await ClockCycles(dut.clk, 20)
    assert len(sink) == 0
    dut.time_ns.value = began + abi.NODE_AGE_MAX_NS
    await ClockCycles(dut.clk, 20)
    assert node_of(int(await sink.recv())).psns == [100, 101]


def growing_node(rng, encodings):
    """Return runs (offset, length) of one node that is not sealed, and the cost of each in cycles."""
    gap, longest = rng.choice([(1, 1), (1, 3), (3, 6), (9, 2000)]), rng.choice([1, 2, 4, 40])
    holes, before = [], None
    while True:
        at = holes[-1] + 1 + rng.choice([0, rng.randint(*gap)]) if holes else 0
        grown = holes + list(range(at, at + rng.randint(1, longest)))
        after = next((e for e in encodings if fits(e, grown)), None)
        if after is None or len(grown) == abi.NODE_HOLES_MAX:
            return
        entries = len(runs_of(holes)) if before is abi.Encoding.RUNS else len(holes)
        changed = before not in (None, after)
        yield at, grown[-1] + 1 - at, 5 + (entries + 1 if changed else 0), (before, after) if changed else None
        holes, before = grown, after


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def run_takes_five_cycles_and_encoding_change_more(dut):
    rng, edge = random.Random(bench_seed()), RisingEdge(dut.clk)
    await start_clock(dut)
    dut.node_age_ns.value = (1 << 32) - 1
    dut.o__ready.value = 1
    encodings = tuple(abi.Encoding[name] for name in os.environ["ENCODINGS"].split())
    wanted = {(a, b) for a in encodings for b in encodings if a < b}
    seen, longest, limit = Counter(), 0, 5 + 21 if wanted else 5

    async def send(payload):
        """Return the cycles until the run is taken."""
        dut.i__payload.value, dut.i__valid.value = payload, 1
        cycles = 0
        while True:
            await edge
            cycles += 1
            if int(dut.i__ready.value):
                return cycles

    nodes = 0
    while nodes < 20 or not wanted <= set(seen) or longest < limit:
        nodes += 1
        psn = rng.getrandbits(32)
        cost = 3 if nodes > 1 else 1        # of the run of length 0 that ends the node before
        for at, length, cycles, change in growing_node(rng, encodings):
            assert await send(run_payload(3, 9, psn + at, length, 0)) == cost
            cost = cycles
            longest = max(longest, cycles)
            seen[change] += 1
        assert await send(run_payload(3, 9, psn, 0, 0)) == cost
    assert longest == limit and int(dut.o__valid.value) == 0
    dut._log.info("%d nodes, %s, %d cycles at most", nodes, dict(seen), longest)


def simulate_with(sim, encodings):
    simulate(NodeBuilder(replace(PARAMS, node_encodings=encodings)), name="adamap_builder",
             cases=__file__, sim=sim, env={"ENCODINGS": " ".join(encodings)})


@pytest.mark.parametrize("sim", SIMULATORS)
def test_nodes_hold_every_hole_in_the_best_encoding(sim):
    simulate_with(sim, NODE_ENCODINGS)


@pytest.mark.parametrize("encodings", [("BITMAP",), ("LIST", "BITMAP"), ("LIST", "RUNS")], ids="_".join)
def test_builder_with_a_subset_of_encodings(encodings):
    simulate_with("icarus", encodings)
