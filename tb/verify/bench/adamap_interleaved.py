"""Share of retransmissions that find their node on the card when several QPs recover at once.

The set-up is that of :mod:`~weft.tb.verify.bench.adamap_stall` under harder conditions: the head cache is that of a
preset, the retransmissions of all QPs arrive as one stream of packets of 1 KiB at 100 Gb/s without pauses, each packet
belongs to a random QP, and no two consecutive nodes of a list are in adjacent blocks, so that each node takes a
separate read. Each QP loses packets as it does there.
"""

import random
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import cocotb

from weft.hdl.adamap.adamap import Adamap
from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.tb.sim.block.adamap.prepared_lists import FIRST_LINE, now, pass_cycles
from weft.tb.sim.block.adamap.with_qp_table import WithQpTable
from weft.tb.sim.flow.bench import given, leave, run_bench
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.stream.clock import start_clock
from weft.tb.verify.bench.light_subsystem import HitCounter, LightSubsystem
from weft.tb.verify.bench.losses import FIRST_PSN, PACKET_CYCLES, batches, nodes_of

MATCHES = 2400          # sum over all QPs
READ_CYCLES = 250       # 1 µs
LINE_STRIDE = 3
BAR = 0.999


@dataclass(frozen=True)
class Case:
    """Settings of one figure: ``qps`` QPs, prefetch depth ``depth``, and the head cache of preset ``card``."""

    workload: str
    qps: int
    depth: int
    card: str = "test"

    @property
    def name(self):
        suffix = "" if self.card == "test" else f"_{self.card}"
        return f"adamap_unstalled_fraction_{self.workload}_q{self.qps}_n{self.depth}{suffix}"

    @property
    def conditions(self):
        of = "1 QP" if self.qps == 1 else f"{self.qps} QPs interleaved packet by packet"
        return (f"{of}, no rests, {preset(self.card).cache_entries} cache entries (preset {self.card}), lists linked "
                f"far ahead, a read of 1 µs for each node, packets of 1 KiB at 100 Gb/s, {LOSSES[self.workload]}")


LOSSES = {"batched": "1e-3 lost at random, reported by the millisecond",
          "comb": "every 384th lost, reported by the millisecond"}
CASES = [Case(workload, qps, depth, card)
         for card, numbers in (("test", (1, 8, 14)), ("basic", (8, 56)))
         for qps in numbers for depth in (2, 4) for workload in LOSSES]


def card_params(card):
    """Return preset ``test`` with the head cache of another preset."""
    like = preset(card)
    return replace(preset("test"), qps=max(16, like.cache_entries), knit_extents=1, match_queue=like.match_queue,
                   cache_entries=like.cache_entries, prefetch_depth_max=like.prefetch_depth_max)


class RecoveringQp:
    """QP with a list of nodes and the retransmissions for it."""

    def __init__(self, case, matches, qpn, generation, rng):
        self.qpn, self.generation = qpn, generation
        count = -(-matches // case.qps)
        lost = batches(case.workload, count, rng)
        self.nodes = nodes_of(lost, qpn, generation)
        self.psns = [FIRST_PSN + at for batch in lost for at in batch][:count]
        self.lines, self.sent = [], 0

    def next_packet(self):
        """Return QPN, generation, PSN and RSN of the next retransmission."""
        self.sent += 1
        return self.qpn, self.generation, self.psns[self.sent - 1], self.sent - 1


def place(qps, rng):
    """Place all nodes, and a block after each list, without neighbors in a list; return the blocks by line."""
    lines = list(range(FIRST_LINE, FIRST_LINE + LINE_STRIDE * sum(len(qp.nodes) + 1 for qp in qps), LINE_STRIDE))
    rng.shuffle(lines)
    blocks = {}
    for qp in qps:
        qp.lines = [lines.pop() for _ in range(len(qp.nodes) + 1)]
        blocks |= {line: node.pack(next_line=after, next_adjacent=0)
                   for node, (line, after) in zip(qp.nodes, pairwise(qp.lines), strict=True)}
    return blocks


async def run_case(subsystem, blocks, case, matches, generation, rng):
    """Send ``matches`` retransmissions; return the fraction that did not wait."""
    subsystem.cache(case.depth)
    qps = [RecoveringQp(case, matches, qpn, generation, rng) for qpn in range(case.qps)]
    blocks.clear()
    blocks |= place(qps, rng)
    for qp in qps:
        await subsystem.create(qp.qpn, generation, first_psn=FIRST_PSN, end_psn=qp.psns[-1] + 1, line=qp.lines[0],
                               nodes=len(qp.nodes))
    await subsystem.rest()
    turns = [qp for qp in qps for _ in qp.psns]
    rng.shuffle(turns)
    hits, due = HitCounter(subsystem.dut), float(now())
    for qp in turns:
        subsystem.retransmit(*qp.next_packet())
        due += PACKET_CYCLES
        await pass_cycles(subsystem.dut, int(due) - now())
    await subsystem.rest()
    for qp in qps:
        await subsystem.destroy(qp.qpn, generation)
    hits.stop()
    return hits.count / len(turns)


@cocotb.test()
async def stalls(dut):
    """Pass the figures by name to the benchmark."""
    await start_clock(dut)
    blocks = {}
    subsystem = LightSubsystem(dut, lambda line: blocks.get(line, bytes(abi.BLOCK_BYTES)), lambda: READ_CYCLES)
    await subsystem.start()
    settings = given()
    figures, cases = {}, [Case(**case) for case in settings["cases"]]
    for number, case in enumerate(cases):
        report_progress(settings["progress"], case.name, number, len(cases))
        figures[case.name] = await run_case(subsystem, blocks, case, settings["matches"], 1 + number % 255,
                                            random.Random(bench_seed()))
    leave(figures)


def measure(progress, cases=CASES, sim="verilator"):
    """Return a row for each case."""
    figures = {}
    for card in {case.card: None for case in cases}:
        mine = [asdict(case) for case in cases if case.card == card]
        figures |= run_bench(WithQpTable(Adamap(card_params(card))), name=f"adamap_interleaved_{card}", cases=__file__,
                             settings={"cases": mine, "matches": MATCHES, "progress": str(progress)}, sim=sim,
                             seed=1, optimize="run", timeout_s=1800)
    return [Row(case.name, "of matches", figures[case.name], conditions=case.conditions,
                at_least=BAR if case.card == "test" and case.qps > 1 and case.depth == 4 else None) for case in cases]
