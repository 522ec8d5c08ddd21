"""The bitmap window: verdicts, holes and throughput against the functional model."""

import os
import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import cocotb
import pytest
from cocotb.triggers import RisingEdge, with_timeout

from weft.hdl.abi import HOLES_BITS
from weft.hdl.adamap.control import ControlKind, ControlOp
from weft.hdl.adamap.window import Window
from weft.hdl.layouts import HoleRun, Judgement, JudgeRequest, MatchRequest
from weft.hdl.params import preset
from weft.model.functional import window as model
from weft.tb.flow.clock import start_clock
from weft.tb.flow.payload import pack, unpack
from weft.tb.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.flow.stream import StreamSink, StreamSource

BITS = int(os.environ.get("WINDOW_BITS", "64"))


def merge(runs):
    """Runs with neighbours joined."""
    out = []
    for psn, length in runs:
        if out and out[-1][0] + out[-1][1] == psn:
            out[-1] = (out[-1][0], out[-1][1] + length)
        else:
            out.append((psn, length))
    return out


async def tables(dut, cums):
    """Answer the row reads one cycle later."""
    edge = RisingEdge(dut.clk)
    while True:
        await edge
        if int(dut.row_en.value):
            dut.cum.value = cums[int(dut.row_index.value)]


async def control(dut, kind, **fields):
    dut.i_control__payload.value = pack(ControlOp, kind=kind, **fields)
    dut.i_control__valid.value = 1
    await RisingEdge(dut.clk)
    while not int(dut.i_control__ready.value):
        await RisingEdge(dut.clk)
    dut.i_control__valid.value = 0
    await RisingEdge(dut.clk)


class Bench:
    def __init__(self, dut, rng, pause):
        self.dut, self.rng = dut, rng
        self.source = StreamSource(dut, "i", dut.clk, pause=pause, rng=random.Random(rng.random()))
        self.sink = StreamSink(dut, "o", dut.clk, pause=pause, rng=random.Random(rng.random()))
        self.runs = StreamSink(dut, "o_run", dut.clk, pause=pause, rng=random.Random(rng.random()))
        self.matches, self.unmatched = [], []
        self.stalls = self.holes = 0
        cocotb.start_soon(self.watch())

    async def watch(self):
        while True:
            await RisingEdge(self.dut.clk)
            if int(self.dut.o_match__valid.value):
                self.matches.append(unpack(MatchRequest, int(self.dut.o_match__payload.value)))
            if int(self.dut.unmatched.value):
                self.unmatched.append(unpack(MatchRequest, int(self.dut.o_match__payload.value)))
            self.stalls += int(self.dut.count_window_stall_cycles.value)
            self.holes += int(self.dut.count_holes.value)


def traffic(rng, window, in_order):
    """One random packet for a window, as fields of a JudgeRequest; the next one with chance ``in_order``."""
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


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def random_packets(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    generations = [rng.randrange(256) for _ in range(4)]
    windows = [
        model.Window(BITS, rng.choice([0, 1, rng.getrandbits(24), (1 << 24) - 30, (1 << 32) - 300])) for _ in range(4)
    ]
    names = [rng.getrandbits(22) << 2 | k for k in range(4)]      # the low bits say which row
    cums = [w.base % (1 << 24) for w in windows]
    cocotb.start_soon(tables(dut, cums))
    seen = Counter()
    expected_runs, got_runs = [], []
    for qpn, w in enumerate(windows):
        await control(dut, ControlKind.CREATE, qpn=qpn, generation=generations[qpn], psn=w.base)
    bench = Bench(dut, rng, rng.choice([0.0, 0.4]))
    stuck = 0
    for _ in range(60):
        reorder = rng.choice([0, 1, 1, 2, 8, 40, BITS, 1000])
        dut.reorder_distance.value = reorder
        room = int(rng.random() < 0.85)
        dut.match_space.value = room
        burst, expected, expected_matches, expected_unmatched = [], [], [], []
        only = rng.randrange(4) if rng.random() < 0.3 else None
        in_order = rng.choice([0.3, 0.5, 0.85])
        for _ in range(25):
            qpn = rng.randrange(4) if only is None else only
            w = windows[qpn]
            fields = {
                **traffic(rng, w, in_order),
                "qpn": names[qpn],
                "generation": generations[qpn],
                "ticket": rng.randrange(256),
            }
            flags = {k: bool(fields.get(k, 0)) for k in ("retransmission", "probe", "ack_req")}
            was_owed = w.owed
            judged = w.judge(fields["psn"], **flags, room=room, reorder=reorder, guard=fields["psn_guard"])
            burst.append(pack(JudgeRequest, **fields))
            expected.append(
                (
                    judged.verdict,
                    judged.psn % (1 << 32),
                    judged.base % (1 << 32),
                    judged.holes % (1 << HOLES_BITS),
                    int(judged.progress),
                )
            )
            if judged.verdict in (model.MATCH, model.UNMATCHED, model.PROBE):
                (expected_matches if room else expected_unmatched).append(
                    SimpleNamespace(
                        qpn=names[qpn],
                        generation=generations[qpn],
                        psn=judged.psn % (1 << 32),
                        rsn=fields["rsn"],
                        probe=int(flags["probe"]),
                        ticket=fields["ticket"],
                    )
                )
            tag = (names[qpn], generations[qpn], fields["ticket"])
            expected_runs += [(tag, p, n, 0) for p, n in judged.lost]
            if judged.seal:
                expected_runs.append((tag, None, 0, 1))
            seen[judged.verdict] += 1
            seen["progress"] += judged.progress
            seen["far probe"] += judged.verdict == model.FAR and flags["probe"]
            seen["owed"] += not was_owed and w.owed
            seen["jump"] += any(n > 64 for _, n in judged.lost)
        bench.matches.clear()
        bench.unmatched.clear()
        for value in burst:
            bench.source.send_nowait(value)
        for want in expected:
            value = unpack(Judgement, int(await bench.sink.recv()))
            got = (value.verdict, value.psn, value.base, value.holes, value.progress)
            assert got == want, f"judgement {got}, expected {want}"
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        assert bench.matches == expected_matches and bench.unmatched == expected_unmatched
        for qpn in range(4):  # acknowledge a little less than everything
            w = windows[qpn]
            w.cum = max(w.cum, w.base - rng.randint(0, 300))
            cums[qpn] = w.cum % (1 << 24)
        while len(bench.runs):
            got_runs.append(unpack(HoleRun, int(bench.runs.recv_nowait())))
    stuck = bench.stalls
    held = sum(n for _, _, n, _ in expected_runs) + sum(s for *_, s in expected_runs)
    while sum(r.length + r.seal for r in got_runs) < held:  # the last ones may still wait for the sink
        got_runs.append(unpack(HoleRun, int(await bench.runs.recv())))
    # Runs: per packet the same holes, split in steps of the card's own choice.
    def behind(run):
        return (run[1] + run[2]) % (1 << 32)

    joined = []
    for r in got_runs:
        tag = (r.qpn, r.generation, r.ticket)
        if r.seal:
            joined.append((tag, None, 0, 1))
        elif joined and joined[-1][0] == tag and not joined[-1][3] and behind(joined[-1]) == r.psn:
            joined[-1] = (tag, joined[-1][1], joined[-1][2] + r.length, 0)
        else:
            joined.append((tag, r.psn, r.length, 0))
    want = [(t, None if p is None else p % (1 << 32), n, s) for t, p, n, s in expected_runs]
    rejoined = []
    for item in want:
        if (
            rejoined
            and not item[3]
            and rejoined[-1][0] == item[0]
            and not rejoined[-1][3]
            and behind(rejoined[-1]) == item[1]
        ):
            rejoined[-1] = (item[0], rejoined[-1][1], rejoined[-1][2] + item[2], 0)
        else:
            rejoined.append(item)
    assert joined == rejoined
    assert bench.holes == sum(w.holes for w in windows)
    assert stuck > 0, "the window never stalled"
    everything = [*range(8), "far probe", "progress", "owed", "jump"]
    assert all(seen[k] for k in everything), f"not everything occurred: {seen}"
    for qpn in (0, 3):
        await control(dut, ControlKind.QUERY, qpn=qpn)
        assert int(dut.query_base.value) == windows[qpn].base % (1 << 32)
        assert int(dut.query_holes.value) == windows[qpn].holes % (1 << HOLES_BITS)
    await control(dut, ControlKind.DESTROY, qpn=2, generation=7)
    run = unpack(HoleRun, int(await with_timeout(bench.runs.recv(), 1, "us")))
    assert (run.qpn, run.generation, run.length, run.seal) == (2, 7, 0, 0)
    for generation, psn in enumerate((0x5555_5555, 0xAAAA_AAAA), 8):     # a new life begins where it is told to
        await control(dut, ControlKind.CREATE, qpn=2, generation=generation, psn=psn)
        await control(dut, ControlKind.QUERY, qpn=2)
        assert (int(dut.query_base.value), int(dut.query_holes.value)) == (psn, 0)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def in_order_packets_at_full_rate(dut):
    await start_clock(dut)
    cocotb.start_soon(tables(dut, [0] * 4))
    dut.reorder_distance.value = 1
    dut.match_space.value = 1
    for qpn in range(4):
        await control(dut, ControlKind.CREATE, qpn=qpn, generation=0, psn=0)
    bench = Bench(dut, random.Random(1), 0.0)
    for qpns in ([0] * 100, [k % 4 for k in range(100)]):
        psns = Counter({0: 0 if qpns[1] == 0 else 100})
        start = None
        for qpn in qpns:
            bench.source.send_nowait(pack(JudgeRequest, qpn=qpn, psn=psns[qpn]))
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
