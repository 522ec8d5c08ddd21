"""Speed of matching retransmissions in the whole Adamap subsystem, with packets at the input of the window.

Packets for the holes of cached nodes are offered back to back. The interval is the time between two hits in the head
cache; the latency is the time from the cycle in which the window accepts a packet to the cycle of its hit.
"""

from dataclasses import replace

import cocotb
from cocotb.triggers import RisingEdge

from weft.hdl.adamap.adamap import Adamap
from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.tb.sim.block.adamap.prepared_lists import now
from weft.tb.sim.block.adamap.with_qp_table import WithQpTable
from weft.tb.sim.flow.bench import given, leave, run_bench
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.stream.clock import start_clock
from weft.tb.verify.bench.light_subsystem import LightSubsystem
from weft.tb.verify.bench.matched_lists import BURSTS, CACHED, HOLES, READ_CYCLES, SPAN, PreparedList, in_turn

PARAMS = replace(preset("test"), qps=4, knit_extents=1)
QPS = (1, 4)


async def watch(dut, taken, found):
    """Record the cycles of the packets that the window accepts and of the hits in the head cache."""
    edge = RisingEdge(dut.clk)
    while True:
        await edge
        if int(dut.i_check__valid.value) and int(dut.i_check__ready.value):
            taken.append(now())
        if int(dut.count_cache_hits.value):
            found.append(now())


async def run_case(subsystem, lists, encoding, qps, generation, figures):
    """Add latencies and intervals of all packets of ``qps`` QPs to ``figures``."""
    depth = CACHED // qps
    nodes = depth * BURSTS
    subsystem.cache(depth)
    lists[:] = [PreparedList(encoding, nodes, qpn, generation, nodes) for qpn in range(qps)]
    for each in lists:
        await subsystem.create(each.qpn, generation, first_psn=0, end_psn=(nodes + 1) * SPAN, line=each.first_line,
                               nodes=nodes)
    for at in range(0, nodes, depth):
        await subsystem.rest()
        taken, found = [], []
        watching = cocotb.start_soon(watch(subsystem.dut, taken, found))
        packets = in_turn([each.packets(at, depth) for each in lists])
        for packet in packets:
            subsystem.retransmit(*packet)
        await subsystem.rest()
        watching.cancel()
        assert len(taken) == len(found) == len(packets), f"{len(found)} of {len(packets)} nodes were cached"
        figures["latencies"] += [b - a for a, b in zip(taken, found, strict=True)]
        figures["intervals"] += [b - a for a, b in zip(found, found[1:], strict=False)]
    for each in lists:
        await subsystem.destroy(each.qpn, generation)


@cocotb.test()
async def matches(dut):
    """Pass latencies and intervals by number of QPs to the benchmark."""
    await start_clock(dut)
    lists = []
    subsystem = LightSubsystem(dut, lambda line: next((block for each in lists if any(block := each.block(line))),
                                              bytes(abi.BLOCK_BYTES)), lambda: READ_CYCLES["burst"])
    await subsystem.start()
    figures, generation, encodings = {}, 0, [abi.Encoding(code) for code in given()["encodings"]]
    for qps in QPS:
        figures[qps] = {"latencies": [], "intervals": []}
        for encoding in encodings:
            generation += 1
            await run_case(subsystem, lists, encoding, qps, generation, figures[qps])
    leave(figures)


def measure(_progress=None, sim="verilator", encodings=tuple(HOLES)):
    """Return the rows: the worst packet, by number of QPs."""
    figures = run_bench(WithQpTable(Adamap(PARAMS)), name="adamap_match_window", cases=__file__, sim=sim, seed=1,
                        settings={"encodings": encodings})
    rows = []
    for qps, found in figures.items():
        of = f"{qps} QPs in turn" if qps != "1" else "1 QP"
        conditions = (f"the whole subsystem: packets of {of} back to back through the window, nodes cached ahead, all "
                      "encodings; the worst packet, from the window to its node")
        for name, each, bar in (("interval", "intervals", 2), ("latency", "latencies", 7)):
            rows.append(Row(f"adamap_window_match_{name}_cycles_q{qps}", "cycles", max(found[each]), at_most=bar,
                            conditions=conditions))
    return rows
