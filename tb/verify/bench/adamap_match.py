"""Speed of matching retransmissions: lists of 1, 1000 and 100 000 nodes, every encoding, one QP and several.

There are two set-ups. **The second level alone** (:class:`~weft.hdl.adamap.second_level.SecondLevel`) gets a header per
cycle for each hole of the cached nodes, across the ends of nodes, and from several QPs in turn. The latency is the time
from the cycle in which a header is accepted to the cycle in which its hole is cleared; the interval is the time between
two cleared holes. For the set-up **with the window** see :mod:`~weft.tb.verify.bench.adamap_match_window`.

Every list is processed from its first node to its last: in bursts at its beginning and at its end; in between node by
node, each read, matched and retired (nodes of one hole, reads of 64 ns, to shorten the run). Nodes are generated when
they are read. A figure for all cases is the worst of all headers; the spread is the difference between worst and best.
"""

from dataclasses import replace

import cocotb
from cocotb.triggers import Event, RisingEdge

from weft.hdl.adamap.second_level import SecondLevel
from weft.hdl.adamap.window.control import ControlKind
from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import MatchRequest
from weft.tb.sim.block.adamap.prepared_lists import (
    LineMemory,
    create_list,
    link,
    now,
    open_extent,
    operate,
    pass_cycles,
)
from weft.tb.sim.block.adamap.with_qp_table import WithQpTable
from weft.tb.sim.flow.bench import given, leave, run_bench
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import pack
from weft.tb.verify.bench import adamap_match_window
from weft.tb.verify.bench.matched_lists import BURSTS, CACHED, HOLES, READ_CYCLES, PreparedList, in_turn

PARAMS = replace(preset("test"), qps=4, knit_extents=1, cache_entries=16, prefetch_depth_max=16)
ALONE = "the second level alone (matcher, head cache, prefetcher)"
# {name: (encoding, nodes of a list, QPs)}
CASES = {
    **{f"{encoding.name.lower()}_{length}": (encoding, length, 1)
       for encoding in HOLES for length in (1, 1000, 100_000)},
    **{f"{encoding.name.lower()}_1000_q4": (encoding, 1000, 4) for encoding in HOLES},
}


def header(qpn, generation, psn, rsn):
    """Return a header as the window sends it."""
    return pack(MatchRequest, qpn=qpn, generation=generation, psn=psn % (1 << 32), rsn=rsn % (1 << 24))


class Bench:
    """Lists of a case, and host memory."""

    def __init__(self, dut):
        self.dut, self.lists, self.pace, self.read, self.fetched = dut, [], "burst", 0, Event()
        self.memory = LineMemory(dut, self._block, lambda: READ_CYCLES[self.pace])
        for strobe in ("drop__stb", "count_nodes_residue"):
            cocotb.start_soon(self._never(strobe))

    async def _never(self, strobe):
        strobe = getattr(self.dut, strobe)
        while True:
            await RisingEdge(strobe)    # may be a glitch within the cycle
            await RisingEdge(self.dut.clk)
            assert not int(strobe.value), f"{strobe._name}: a retransmission was not matched"

    def _block(self, line):
        self.read = max(self.read, line)
        self.fetched.set()
        return next((block for each in self.lists if any(block := each.block(line))), bytes(abi.BLOCK_BYTES))

    async def watch(self, sent, judged):
        """Record the cycles of accepted headers and of cleared holes."""
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        while True:
            await edge
            if int(dut.i__valid.value):
                assert int(dut.i__ready.value)
                sent.append(now())
            if int(dut.judged.value):
                judged.append(now())

    async def settled(self):
        """Wait until no more nodes can be cached."""
        await pass_cycles(self.dut, 20)
        while not int(self.dut.idle.value):
            await pass_cycles(self.dut, 20)

    async def burst(self, first, count, found):
        """Send a header per cycle for the holes of ``count`` nodes, from the QPs in turn; record the times."""
        dut, edge, sent, judged = self.dut, RisingEdge(self.dut.clk), [], []
        await self.settled()
        watch = cocotb.start_soon(self.watch(sent, judged))
        for packet in in_turn([each.packets(first, count) for each in self.lists]):
            assert int(dut.space.value)
            dut.i__payload.value, dut.i__valid.value = header(*packet), 1
            await edge
        dut.i__valid.value = 0
        await pass_cycles(dut, 20)
        watch.cancel()
        assert len(judged) == len(sent) == len(self.lists) * sum(len(self.lists[0].holes(first + k))
                                                                 for k in range(count)), "headers waited for nodes"
        found["latencies"] += [b - a for a, b in zip(sent, judged, strict=True)]
        found["intervals"] += [b - a for a, b in zip(judged, judged[1:], strict=False)]

    async def walk(self, first, last):
        """Match node after node while the nodes are being read."""
        dut, edge, self.pace = self.dut, RisingEdge(self.dut.clk), "walk"
        for k in range(first, last):
            for each in self.lists:
                while self.read < each.first_line + k and len(self.lists) == 1:
                    self.fetched.clear()
                    await self.fetched.wait()
                packet, = each.packets(k, 1)
                while not int(dut.space.value):
                    await edge
                dut.i__payload.value, dut.i__valid.value = header(*packet), 1
                await edge
                dut.i__valid.value = 0
                await edge
        self.pace = "burst"

    async def run(self, encoding, length, qps, generation):
        """Run a case; return its latencies and intervals."""
        dut, depth = self.dut, CACHED // qps
        dut.prefetch_depth.value = dut.prefetch_watermark.value = depth
        self.lists = [PreparedList(encoding, length, qpn, generation, BURSTS * depth) for qpn in range(qps)]
        self.read = 0
        for each in self.lists:
            await create_list(dut, each.qpn, generation)
            await link(dut, each.qpn, generation, length, each.first_line)
        found = {"latencies": [], "intervals": []}
        dense = self.lists[0].dense
        for at in range(0, dense, depth):
            await self.burst(at, min(depth, length), found)
        if length > 2 * dense:
            await self.walk(dense, length - dense)
            for at in range(length - dense, length, depth):
                await self.burst(at, depth, found)
        await self.settled()
        for each in self.lists:
            for port in ("i_prefetch", "i_matcher"):
                await operate(dut, port, ControlKind.DESTROY, qpn=each.qpn, generation=generation)
        return found


@cocotb.test(timeout_time=2, timeout_unit="sec")
async def matches(dut):
    """Pass the figures by case to the benchmark."""
    await start_clock(dut)
    dut.retransmit_slack.value = 1
    dut.o_report__ready.value = dut.o_qp_error__ready.value = 1
    await open_extent(dut)
    bench, figures, settings = Bench(dut), {}, given()
    for generation, name in enumerate(settings["cases"], 1):
        report_progress(settings["progress"], name, generation - 1, len(CASES))
        figures[name] = await bench.run(*CASES[name], generation)
    leave(figures)


def conditions(name):
    """Return the conditions of a case."""
    encoding, length, qps = CASES[name]
    turns = f" by each of {qps} QPs in turn" if qps > 1 else ""
    return f"{ALONE}, the nodes cached ahead; a list of {length} nodes ({encoding.name}) walked to its end{turns}"


def measure(progress, cases=tuple(CASES), sim="verilator"):
    """Return the rows: the worst of all, then by encoding, list length and QPs, then those with the window."""
    figures = run_bench(WithQpTable(SecondLevel(PARAMS)), name="adamap_match", cases=__file__, sim=sim, seed=1,
                        optimize="run", timeout_s=3600, settings={"cases": cases, "progress": str(progress)})
    latencies = [x for found in figures.values() for x in found["latencies"]]
    intervals = [x for found in figures.values() for x in found["intervals"]]
    of_all = (f"{ALONE}, the nodes cached ahead; the worst header of "
              "lists of 1 to 100 000 nodes walked to their end, of 1 QP and of 4 in turn")
    rows = [
        Row("adamap_match_interval_cycles", "cycles", max(intervals), at_most=1, conditions=of_all),
        Row("adamap_match_latency_cycles", "cycles", max(latencies), at_most=6, conditions=of_all),
        Row("adamap_match_latency_spread_cycles", "cycles", max(latencies) - min(latencies), at_most=0,
            conditions=of_all),
    ]
    for name, found in figures.items():
        rows += [Row(f"adamap_match_interval_cycles_{name}", "cycles", max(found["intervals"]),
                     conditions=conditions(name)),
                 Row(f"adamap_match_latency_cycles_{name}", "cycles", max(found["latencies"]),
                     conditions=conditions(name))]
    return [*rows, *adamap_match_window.measure(progress, sim=sim)]
