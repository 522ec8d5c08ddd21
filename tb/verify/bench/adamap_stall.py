"""Share of retransmissions that find their node on the card when one QP recovers, under favourable conditions.

The Adamap subsystem runs with a host memory that has latency, and with a head cache larger than that of preset
``test``. For several QPs at once see :mod:`~weft.tb.verify.bench.adamap_interleaved`, whose figures come with these.

A figure is the fraction of retransmissions whose node was cached when they arrived; the others waited for a read.
Packets have 1 KiB at 100 Gb/s: one retransmission per 22.1 cycles when they arrive back to back.

- ``batched``: 1e-3 of the packets are lost at random; losses are reported once per millisecond. The retransmissions
  that a report causes arrive back to back.
- ``comb``: every 384th packet is lost; reported in the same way.
- ``immediate``: 1e-3 are lost at random and reported at once, so that retransmissions have the distances of losses.

``n`` is the register ``prefetch_depth``, and the watermark. Nodes come from the builder's model, with which the RTL is
compared; ``raw`` is a card whose builder has only the bitmap encoding (``CardParams.node_encodings``). Every list is
linked far ahead, as with a long round-trip time, in consecutive blocks. Time without activity on the card is skipped:
the prefetcher is idle before the next batch or loss in any case.
"""

import random
from dataclasses import replace

import cocotb
from rich.console import Console

from weft.hdl.adamap.adamap import Adamap
from weft.hdl.contract.params import preset
from weft.tb.sim.block.adamap.prepared_lists import FIRST_LINE, now, pass_cycles
from weft.tb.sim.block.adamap.with_qp_table import WithQpTable
from weft.tb.sim.flow.bench import given, leave, run_bench
from weft.tb.sim.flow.figures import Row, plain_table
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.stream.clock import start_clock
from weft.tb.verify.bench import adamap_interleaved
from weft.tb.verify.bench.light_subsystem import HitCounter, LightSubsystem
from weft.tb.verify.bench.losses import BUILDERS, FIRST_PSN, PACKET_CYCLES, batches, nodes_of

PARAMS = replace(preset("test"), qps=4, knit_extents=1, cache_entries=32, prefetch_depth_max=16)
DEPTHS = (1, 2, 4, 8, 16)
MATCHES = {"batched": 1200, "comb": 1200, "immediate": 600}
LATENCIES = {   # cycles of one read
    "": lambda rng: 250,
    "_500ns": lambda rng: 125,
    "_2us": lambda rng: 500,
    "_tail": lambda rng: 150 + min(int(rng.expovariate(1 / 100)), 2500),
}
READS = {"": "reads of 1 µs", "_500ns": "reads of 0.5 µs", "_2us": "reads of 2 µs",
         "_tail": "reads of 0.6 µs and more, 1 µs on average"}
LOST = {**adamap_interleaved.LOSSES, "immediate": "1e-3 lost at random, each reported at once"}
BAR = 0.999


class Scenario:
    """List of nodes and the retransmissions for it."""

    def __init__(self, workload, matches, builder, generation, rng):
        self.batches, self.generation = batches(workload, matches, rng), generation
        self.nodes = nodes_of(self.batches, 0, generation, builder)

    @property
    def holes_per_node(self):
        return sum(map(len, self.batches)) / len(self.nodes)

    def block(self, line):
        """Return a block of host memory; blocks after the list are zero."""
        k = line - FIRST_LINE
        return self.nodes[k].pack(next_line=line + 1, next_adjacent=1) if k < len(self.nodes) else bytes(64)


async def run_scenario(subsystem, scenario):
    """Send all retransmissions; return the fraction that did not wait."""
    await subsystem.create(0, scenario.generation, first_psn=FIRST_PSN,
                           end_psn=scenario.batches[-1][-1] + FIRST_PSN + 1,
                           line=FIRST_LINE, nodes=len(scenario.nodes))
    hits, rsn, before = HitCounter(subsystem.dut), 0, None
    for batch in scenario.batches:
        if before is not None and (batch[0] - before) * PACKET_CYCLES < 5000:
            await pass_cycles(subsystem.dut, int((batch[0] - before) * PACKET_CYCLES))
        else:
            await subsystem.rest()
        due = float(now())
        for at in batch:
            subsystem.retransmit(0, scenario.generation, FIRST_PSN + at, rsn)
            rsn += 1
            due += PACKET_CYCLES
            await pass_cycles(subsystem.dut, int(due) - now())
        before = batch[0] if len(batch) == 1 else None
    await subsystem.rest()
    await subsystem.destroy(0, scenario.generation)
    hits.stop()
    return hits.count / rsn


@cocotb.test()
async def stalls(dut):
    """Pass the figures by name to the benchmark."""
    rng = random.Random(1)
    await start_clock(dut)
    scenario = latency = None
    subsystem = LightSubsystem(dut, lambda line: scenario.block(line), lambda: latency(rng))
    await subsystem.start()
    settings, figures = given(), {}
    for k, (workload, depth, speed, builder) in enumerate(settings["cases"]):
        report_progress(settings["progress"], f"{workload} n={depth}{speed}{builder}", k, len(settings["cases"]))
        scenario, latency = Scenario(workload, settings["matches"][workload], builder, (k + 1) % 256,
                                     random.Random(7)), LATENCIES[speed]
        subsystem.cache(depth)
        figures[f"{workload}_n{depth}{speed}{builder}"] = await run_scenario(subsystem, scenario)
        figures[f"{workload}{builder} holes"] = scenario.holes_per_node
    leave(figures)


def show(figures):
    """Print the figures as a table."""
    table = plain_table("losses", "builder", "holes per node", "read", *(f"n={n}" for n in DEPTHS),
                        left=("losses", "builder", "read"), title="retransmissions that find their node on the card")
    for workload in MATCHES:
        for builder in BUILDERS:
            for speed in LATENCIES:
                values = [figures.get(f"{workload}_n{n}{speed}{builder}") for n in DEPTHS]
                if any(v is not None for v in values):
                    table.add_row(workload, builder[1:] or "adaptive", f"{figures[f'{workload}{builder} holes']:.1f}",
                                  speed[1:] or "1us", *("" if v is None else f"{v:.4f}" for v in values))
    Console().print(table)


def conditions(workload, speed, builder):
    """Return the common conditions of the figures of a case."""
    return (f"1 QP, at rest before each batch, {PARAMS.cache_entries} cache entries, nodes in consecutive blocks and "
            f"linked far ahead, {'of the bitmap alone, ' if builder else ''}{READS[speed]}, packets of 1 KiB at "
            f"100 Gb/s, {LOST[workload]}")


def measure(progress, *, cases=None, sim="verilator"):
    """Return the rows and print a table: one QP, then several."""
    cases = cases or [(w, n, s, b) for b in BUILDERS for s in LATENCIES for w in MATCHES for n in DEPTHS]
    figures = run_bench(WithQpTable(Adamap(PARAMS)), name="adamap_stall", cases=__file__, sim=sim, seed=1,
                        optimize="run", settings={"cases": cases, "matches": MATCHES, "progress": str(progress)},
                        timeout_s=1800)
    show(figures)
    rows = [Row(f"adamap_unstalled_fraction_{w}_n{n}{s}{b}", "of matches", figures[f"{w}_n{n}{s}{b}"],
                at_least=BAR if (n, s, b) == (4, "", "") else None, conditions=conditions(w, s, b))
            for w, n, s, b in cases]
    return [*rows, *adamap_interleaved.measure(progress, sim=sim)]
