"""Tests of the bitmap window: verdicts, holes and throughput against the functional model."""

import random
from collections import Counter
from dataclasses import replace

import cocotb
import pytest
from cocotb.triggers import RisingEdge, with_timeout

from weft.hdl.adamap.window.control import ControlKind
from weft.hdl.adamap.window.slide import STEP
from weft.hdl.adamap.window.window import Window
from weft.hdl.contract.abi import HOLES_BITS
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import HoleRun, WindowRequest
from weft.model.functional import window as model
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import pack, unpack
from weft.tb.test.hdl.adamap.window_bench import BITS, ROWS, Ports, WindowBench, control, tables
from weft.tb.test.rounds import rounds


def first_psn(rng):
    """Return a PSN at which a window begins."""
    return rng.choice([0, 1, rng.getrandbits(24), (1 << 24) - 30, (1 << 32) - 300])


def traffic(rng, window, in_order):
    """Return one random packet for a window, as fields of a WindowRequest; the next PSN with chance ``in_order``."""
    psn, kind = window.base, 0 if rng.random() < in_order else rng.uniform(0.45, 1)
    newest = max(window.received, default=window.base - 1) + 1
    fields = {"ack_req": int(rng.random() < 0.2)}
    if not kind:
        psn = newest
    elif kind < 0.65:
        psn = newest + rng.choice([1, 1, 2, 3, 10, BITS + 6, 2 * BITS + 20])
    elif kind < 0.67:
        most = window.cum + (1 << 23) - 40_000    # no sender has more outstanding
        psn = min(newest + rng.choice([1000, 70000, 1 << 23]), most)
    elif kind < 0.82:
        psn = rng.randint(window.base, newest)
    elif kind < 0.88:
        psn = window.base - rng.randint(1, 400)
    elif kind < 0.93:
        psn = newest + rng.choice([0, 0, 1, 5, 100, 100, 300]) - rng.choice([0, 3])
        fields = {"probe": 1, "psn_guard": rng.choice([0, 0, rng.randrange(16, 24)])}
    else:
        psn = window.base - rng.choice([1, 2, 30, 400, -2])
        fields["retransmission"] = 1
    guard = rng.choice([0, 0, 0, rng.randrange(24)])
    return {"psn_guard": guard, **fields, "psn": psn % (1 << 24), "rsn": rng.getrandbits(24)}


@cocotb.test(timeout_time=40, timeout_unit="ms")
async def random_packets(dut):
    rng = random.Random(bench_seed())
    bench = await WindowBench.start(dut, rng, [first_psn(rng) for _ in range(ROWS)], rng.choice([0.0, 0.4]))
    for _ in rounds(bench.seen, [*range(8), "far probe", "progress", "owed", "jump", "stall"], least=60, most=600):
        bench.set(reorder=rng.choice([0, 1, 1, 2, 8, 40, BITS, 1000]), space=int(rng.random() < 0.85))
        only = rng.randrange(ROWS) if rng.random() < 0.3 else None
        in_order = rng.choice([0.3, 0.5, 0.85])
        for _ in range(25):
            row = rng.randrange(ROWS) if only is None else only
            bench.ask(row, **traffic(rng, bench.windows[row], in_order))
        await bench.answers()
        bench.acknowledge()
        bench.seen["stall"] = bench.ports.stalls
    await bench.runs_agree()
    windows = bench.windows
    for qpn in (0, 3):
        await control(dut, ControlKind.QUERY, qpn=qpn)
        assert int(dut.query_base.value) == windows[qpn].base % (1 << 32)
        assert int(dut.query_holes.value) == windows[qpn].holes % (1 << HOLES_BITS)
    await control(dut, ControlKind.DESTROY, qpn=2, generation=7)
    run = unpack(HoleRun, int(await with_timeout(bench.ports.runs.recv(), 1, "us")))
    assert (run.qpn, run.generation, run.length, run.seal) == (2, 7, 0, 0)
    for generation, psn in enumerate((0x5555_5555, 0xAAAA_AAAA), 8):     # bases of new incarnations
        await control(dut, ControlKind.CREATE, qpn=2, generation=generation, psn=psn)
        await control(dut, ControlKind.QUERY, qpn=2)
        assert (int(dut.query_base.value), int(dut.query_holes.value)) == (psn, 0)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_pattern_slides_out(dut):
    """Runs of received and missing PSNs of any length: exactly the missing ones are passed on."""
    rng, lengths = random.Random(bench_seed()), Counter()
    bench = await WindowBench.start(dut, rng, [first_psn(rng) for _ in range(ROWS)], 0.0)
    bench.set(reorder=BITS)
    for _ in range(4000 // BITS):
        row = rng.randrange(ROWS)
        base = at = bench.windows[row].base
        missing, packets = rng.randint(1, STEP), []
        while at + missing < base + BITS:       # a received PSN is a duplicate
            at += missing
            length = min(rng.choice([1, 2, rng.randint(3, STEP), rng.randint(STEP, 3 * STEP)]), base + BITS - at)
            packets += range(at, at + length)
            lengths[min(length, STEP)] += 1
            at, missing = at + length, rng.choice([1, 1, 2, rng.randint(3, 2 * STEP)])
        rng.shuffle(packets)
        for psn in packets:
            bench.ask(row, psn=psn)
        if rng.random() < 0.5:
            bench.ask(row, psn=base + rng.randint(STEP, BITS), probe=1)
        else:
            bench.ask(row, psn=base + BITS + rng.randint(0, BITS - 1))
        await bench.answers()
        bench.acknowledge()
    await bench.runs_agree()
    assert all(lengths[k] for k in (1, 2, STEP)) and sum(lengths[k] for k in range(3, STEP)) > 3, lengths


@cocotb.test(timeout_time=100, timeout_unit="us")
async def jump_of_any_length_is_counted(dut):
    """Each bit of the length alone, and all lower ones."""
    rng = random.Random(bench_seed())
    bench = await WindowBench.start(dut, rng, [first_psn(rng) for _ in range(ROWS)], 0.0)
    bench.set(reorder=1)
    lengths = [(1 << k) - less for k in range(1, 23) for less in (0, 1)]
    rng.shuffle(lengths)
    for length in lengths:
        row = rng.randrange(ROWS)
        base = bench.windows[row].base
        assert bench.ask(row, psn=base + length).lost == [(base, length)]
        await bench.answers()
        bench.acknowledge()
    await bench.runs_agree()


@cocotb.test(timeout_time=100, timeout_unit="us")
async def late_packets_are_distinguished_from_stale_ones(dut):
    """However far the cumulative PSN of a QP is before its window."""
    rng = random.Random(bench_seed())
    bench = await WindowBench.start(dut, rng, [first_psn(rng) for _ in range(ROWS)], 0.0)
    bench.set(reorder=1)
    distances = [(1 << k) - less for k in range(1, 23) for less in (0, 1)]
    rng.shuffle(distances)
    for distance in distances:
        row = rng.randrange(ROWS)
        window = bench.windows[row]
        window.cum = window.base - distance
        bench.cums[row] = window.cum % (1 << 24)
        assert bench.ask(row, psn=window.cum).verdict == model.LATE
        assert bench.ask(row, psn=window.cum - 1).verdict == model.STALE
        await bench.answers()
    await bench.runs_agree()


@cocotb.test(timeout_time=100, timeout_unit="us")
async def in_order_packets_at_full_rate(dut):
    await start_clock(dut)
    cocotb.start_soon(tables(dut, [0] * 4))
    dut.reorder_distance.value = 1
    dut.match_space.value = 1
    for qpn in range(4):
        await control(dut, ControlKind.CREATE, qpn=qpn, generation=0, psn=0)
    bench = Ports(dut, random.Random(1), 0.0)
    for qpns in ([0] * 100, [k % 4 for k in range(100)]):
        psns = Counter({0: 0 if qpns[1] == 0 else 100})
        start = None
        for qpn in qpns:
            bench.source.send_nowait(pack(WindowRequest, qpn=qpn, psn=psns[qpn]))
            psns[qpn] += 1
        cycles = 0
        before = bench.sink.received
        while bench.sink.received - before < 100:
            await RisingEdge(dut.clk)
            if int(dut.i__valid.value) and start is None:
                start = cycles
            cycles += 1
            if bench.sink.received - before == 0:
                first = cycles
        dut._log.info("100 packets in %d cycles, latency %d", cycles - start, first - start)
        assert cycles - start <= 200 + 8
        assert first - start <= 8
    assert bench.stalls == 0


@pytest.mark.parametrize(("sim", "bits"), [*((sim, 64) for sim in SIMULATORS), ("verilator", 512)])
def test_verdicts_and_holes_agree_with_the_model(sim, bits):
    params = replace(preset("test"), qps=4, window_bits=bits)
    simulate(Window(params), name="adamap_window", cases=__file__, sim=sim,
             env={"WINDOW_BITS": str(bits)})
