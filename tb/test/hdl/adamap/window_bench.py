"""Bench of the window block beside the functional model: verdicts, and the holes that the block passes on."""

import os
import random
from collections import Counter
from types import SimpleNamespace

import cocotb
from cocotb.triggers import RisingEdge

from weft.hdl.adamap.window.control import ControlKind, ControlOp
from weft.hdl.contract.abi import HOLES_BITS
from weft.hdl.part.layouts import HoleRun, MatchRequest, WindowRequest, WindowVerdict
from weft.model.functional import window as model
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import pack, unpack
from weft.tb.sim.stream.stream import StreamSink, StreamSource

ROWS = 4
BITS = int(os.environ.get("WINDOW_BITS", "64"))
MATCHED = (model.MATCH, model.UNMATCHED, model.PROBE)


def merge(runs):
    """Return runs (tag, PSN, length, seal), with adjacent runs of a packet merged."""
    out = []
    for tag, psn, length, seal in runs:
        last = out[-1] if out else None
        if last and not seal and not last[3] and last[0] == tag and (last[1] + last[2]) % (1 << 32) == psn:
            out[-1] = (tag, last[1], last[2] + length, 0)
        else:
            out.append((tag, None if seal else psn, length, seal))
    return out


async def tables(dut, cums):
    """Answer the row reads one cycle later."""
    edge = RisingEdge(dut.clk)
    while True:
        await edge
        if int(dut.row_en.value):
            dut.cum.value = cums[int(dut.row_index.value)]


async def control(dut, kind, **fields):
    """Execute one control operation."""
    dut.i_control__payload.value = pack(ControlOp, kind=kind, **fields)
    dut.i_control__valid.value = 1
    await RisingEdge(dut.clk)
    while not int(dut.i_control__ready.value):
        await RisingEdge(dut.clk)
    dut.i_control__valid.value = 0
    await RisingEdge(dut.clk)


class Ports:
    """The streams of the block, and counts of its strobes.

    Attributes
    ----------
    matches, unmatched : list of MatchRequest
    stalls, holes : int
    """

    def __init__(self, dut, rng, pause):
        self.dut = dut
        self.source = StreamSource(dut, "i", dut.clk, pause=pause, rng=random.Random(rng.random()))
        self.sink = StreamSink(dut, "o", dut.clk, pause=pause, rng=random.Random(rng.random()))
        self.runs = StreamSink(dut, "o_run", dut.clk, pause=pause, rng=random.Random(rng.random()))
        self.matches, self.unmatched = [], []
        self.stalls = self.holes = 0
        cocotb.start_soon(self._watch())

    async def _watch(self):
        while True:
            await RisingEdge(self.dut.clk)
            if int(self.dut.o_match__valid.value):
                self.matches.append(unpack(MatchRequest, int(self.dut.o_match__payload.value)))
            if int(self.dut.unmatched.value):
                self.unmatched.append(unpack(MatchRequest, int(self.dut.o_match__payload.value)))
            if int(self.dut.count_window_stall_cycles.value):
                self.stalls += 1
                assert int(self.dut.i__valid.value) and not int(self.dut.i__ready.value), "no packet waits"
            self.holes += int(self.dut.count_holes.value)


class WindowBench:
    """The windows of a few QPs, in the block and in the model.

    Attributes
    ----------
    windows : list of model.Window
        By row.
    seen : Counter
        Verdicts by number, and other events.
    """

    def __init__(self, dut, rng, bases):
        self.dut, self.rng = dut, rng
        self.windows = [model.Window(BITS, base) for base in bases]
        self.generations = [rng.randrange(256) for _ in bases]
        self.names = [rng.getrandbits(22) << 2 | row for row in range(ROWS)]      # the low bits select the row
        self.cums = [w.base % (1 << 24) for w in self.windows]
        self.seen, self.space, self.reorder = Counter(), 1, 1
        self._judgements, self._matches, self._unmatched = [], [], []   # expected
        self._runs, self._got_runs = [], []

    @classmethod
    async def start(cls, dut, rng, bases, pause):
        """Start the clock and create the windows."""
        await start_clock(dut)
        bench = cls(dut, rng, bases)
        cocotb.start_soon(tables(dut, bench.cums))
        for row, window in enumerate(bench.windows):
            await control(dut, ControlKind.CREATE, qpn=row, generation=bench.generations[row], psn=window.base)
        bench.ports = Ports(dut, rng, pause)
        return bench

    def set(self, *, reorder, space=1):
        """Set the reorder distance, and the match queue's space, while no packet is outstanding."""
        self.dut.reorder_distance.value, self.dut.match_space.value = reorder, space
        self.reorder, self.space = reorder, space

    def ask(self, row, *, psn, rsn=0, psn_guard=0, **flags):
        """Send a packet to both windows; flags as in WindowRequest."""
        window, seen = self.windows[row], self.seen
        about = {"qpn": self.names[row], "generation": self.generations[row], "ticket": self.rng.randrange(256)}
        was_owed = window.owed
        judged = window.judge(psn % (1 << 24), **{name: bool(flag) for name, flag in flags.items()}, space=self.space,
                              reorder=self.reorder, guard=psn_guard)
        self.ports.source.send_nowait(
            pack(WindowRequest, psn=psn % (1 << 24), rsn=rsn, psn_guard=psn_guard, **about, **flags))
        self._judgements.append((judged.verdict, judged.psn % (1 << 32), judged.base % (1 << 32),
                                 judged.holes % (1 << HOLES_BITS), int(judged.progress)))
        if judged.verdict in MATCHED:
            (self._matches if self.space else self._unmatched).append(SimpleNamespace(
                psn=judged.psn % (1 << 32), rsn=rsn, probe=int(flags.get("probe", 0)), **about))
        tag = tuple(about.values())
        self._runs += [(tag, first % (1 << 32), length, 0) for first, length in judged.lost]
        if judged.seal:
            self._runs.append((tag, None, 0, 1))
        seen[judged.verdict] += 1
        seen["far probe"] += judged.verdict == model.FAR and bool(flags.get("probe"))
        seen["progress"] += judged.progress
        seen["owed"] += not was_owed and window.owed
        seen["jump"] += any(length > 64 for _, length in judged.lost)
        return judged

    async def answers(self):
        """Compare the block's verdicts for all packets so far."""
        for want in self._judgements:
            value = unpack(WindowVerdict, int(await self.ports.sink.recv()))
            got = (value.verdict, value.psn, value.base, value.holes, value.progress)
            assert got == want, f"judgement {got}, expected {want}"
        await RisingEdge(self.dut.clk)
        await RisingEdge(self.dut.clk)
        assert self.ports.matches == self._matches and self.ports.unmatched == self._unmatched
        for those in (self._judgements, self._matches, self._unmatched, self.ports.matches, self.ports.unmatched):
            those.clear()
        while len(self.ports.runs):
            self._got_runs.append(unpack(HoleRun, int(self.ports.runs.recv_nowait())))

    def acknowledge(self):
        """Post cumulative PSNs like the driver, a little less than the maximum."""
        for row, window in enumerate(self.windows):
            window.cum = max(window.cum, window.base - self.rng.randint(0, 300))
            self.cums[row] = window.cum % (1 << 24)

    async def runs_agree(self):
        """Check that each packet has the same holes; the block may split them in other steps."""
        held = sum(length + seal for *_, length, seal in self._runs)
        while sum(run.length + run.seal for run in self._got_runs) < held:  # the last ones may still wait for the sink
            self._got_runs.append(unpack(HoleRun, int(await self.ports.runs.recv())))
        got = [((run.qpn, run.generation, run.ticket), run.psn, run.length, run.seal) for run in self._got_runs]
        assert merge(got) == merge(self._runs)
        assert self.ports.holes == sum(window.holes for window in self.windows)
