"""How fast retransmissions are matched: lists of 1, 1000 and 100 000 nodes, every encoding, reads of 1 µs.

The nodes of a list are made when they are read; as many are posted as linked as the list is long. Whenever the cache is
full of nodes, a header for each of their holes is sent, one per cycle and across the ends of nodes. Latency counts
from the cycle in which a header is taken to the cycle in which its hole is cleared; the interval is the time between
two such cycles. A figure for all is the worst of all headers; the spread is the difference between worst and best.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import cocotb
from cocotb.triggers import RisingEdge

from weft.hdl import abi
from weft.hdl.adamap.control import ControlKind
from weft.hdl.adamap.second_level import SecondLevel
from weft.hdl.layouts import MatchRequest
from weft.hdl.params import preset
from weft.model.functional.node import Node
from weft.tb.blocks.adamap.made_lists import LineMemory, create_list, link, now, open_extent, operate
from weft.tb.blocks.adamap.with_qp_table import WithQpTable
from weft.tb.flow.clock import start_clock
from weft.tb.flow.payload import pack
from weft.tb.flow.simulate import simulate
from weft.tb.measure.benchmark import Row

PARAMS = replace(preset("test"), qps=4, knit_extents=1, cache_entries=16, prefetch_depth_max=16)
LENGTHS = (1, 1000, 100_000)
DEPTH = 8               # nodes cached ahead
BURSTS = 10
READ_CYCLES = 250       # 1 µs
FIRST_LINE = 64
HOLES = {
    abi.Encoding.LIST: tuple(k * 401 for k in range(abi.LIST_HOLES)),
    abi.Encoding.RUNS: tuple(k * 999 + j for k in range(abi.RUNS_MAX) for j in range(6)),
    abi.Encoding.BITMAP: tuple(range(0, abi.NODE_BODY_BITS, 2)),
}
SPAN = 20_000           # PSNs from one node's base to the next


class Walk:
    """One list, matched in bursts."""

    def __init__(self, dut, encoding, length, generation):
        self.dut, self.encoding, self.length, self.generation = dut, encoding, length, generation
        self.holes = HOLES[encoding]
        self.sent, self.judged, self.refused = [], [], 0

    def block(self, line):
        """Node ``line - FIRST_LINE`` of the list, which lies in one piece."""
        k = line - FIRST_LINE
        node = Node(0, self.generation, k * SPAN, k * len(self.holes), self.encoding, self.holes)
        return node.pack(next_line=line + 1, next_adjacent=1)

    async def watch(self):
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        while True:
            await edge
            if int(dut.i__valid.value):
                assert int(dut.i__ready.value)
                self.sent.append(now())
            if int(dut.judged.value):
                self.judged.append(now())
                self.refused += int(dut.refuse__stb.value)

    async def burst(self, first, count):
        """A header per cycle for the holes of some nodes."""
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        for k in range(first, first + count):
            for slot, hole in enumerate(self.holes):
                assert int(dut.space.value)
                dut.i__payload.value = pack(
                    MatchRequest, qpn=0, generation=self.generation, psn=(k * SPAN + hole) % (1 << 32),
                    rsn=(k * len(self.holes) + slot) % (1 << 24))
                dut.i__valid.value = 1
                await edge
        dut.i__valid.value = 0

    async def run(self):
        dut = self.dut
        await create_list(dut, 0, self.generation, FIRST_LINE)
        await link(dut, 0, self.generation, self.length)
        at, found = 0, {"latencies": [], "intervals": []}
        for _ in range(BURSTS):
            count = min(DEPTH, self.length - at)
            if not count:
                break
            for _ in range(count * (READ_CYCLES + 40) + 100):      # the cache fills
                await RisingEdge(dut.clk)
            self.sent.clear()
            self.judged.clear()
            await self.burst(at, count)
            for _ in range(20):
                await RisingEdge(dut.clk)
            assert len(self.judged) == len(self.sent) == count * len(self.holes) and not self.refused
            found["latencies"] += [b - a for a, b in zip(self.sent, self.judged, strict=True)]
            found["intervals"] += [b - a for a, b in zip(self.judged, self.judged[1:], strict=False)]
            at += count
        return found


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def matches(dut):
    await start_clock(dut)
    dut.retransmit_slack.value = 1
    dut.prefetch_depth.value = dut.prefetch_watermark.value = DEPTH
    dut.o_report__ready.value = dut.o_qp_error__ready.value = 1
    await open_extent(dut)
    current = None
    LineMemory(dut, lambda line: current.block(line), lambda: READ_CYCLES)
    figures, generation = {}, 0
    for encoding in HOLES:
        for length in LENGTHS:
            generation += 1
            current = Walk(dut, encoding, length, generation)
            watch = cocotb.start_soon(current.watch())
            figures[f"{encoding.name.lower()}_{length}"] = await current.run()
            watch.cancel()
            for port in ("i_prefetch", "i_matcher"):
                await operate(dut, port, ControlKind.DESTROY, qpn=0, generation=generation)
    Path(os.environ["WEFT_RUN"], "figures.json").write_text(json.dumps(figures))


def measure(_progress=None, sim="verilator"):
    """Rows: the worst of all, then by encoding and list length."""
    run = simulate(WithQpTable(SecondLevel(PARAMS)), name="adamap_match", cases=__file__, sim=sim, seed=1)
    figures = json.loads((run / "figures.json").read_text())
    latencies = [x for found in figures.values() for x in found["latencies"]]
    intervals = [x for found in figures.values() for x in found["intervals"]]
    rows = [
        Row("adamap_match_interval_cycles", "cycles", max(intervals), at_most=1),
        Row("adamap_match_latency_cycles", "cycles", max(latencies), at_most=8),
        Row("adamap_match_latency_spread_cycles", "cycles", max(latencies) - min(latencies), at_most=0),
    ]
    for name, found in figures.items():
        rows += [Row(f"adamap_match_interval_cycles_{name}", "cycles", max(found["intervals"])),
                 Row(f"adamap_match_latency_cycles_{name}", "cycles", max(found["latencies"]))]
    return rows
