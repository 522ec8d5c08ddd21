"""How often a retransmission finds its node on the card when several QPs recover at once.

The Adamap room as in :mod:`~weft.tb.measure.adamap_stall`, but nothing helps it: the head cache is that of a preset,
the retransmissions of all QPs come as one stream of packets of 1 KiB at 100 Gb/s without a rest, QPs chosen at random
packet by packet, and no node lies behind its predecessor, so that each takes a read of its own. Each QP loses packets
of its own stream as it does there.
"""

import json
import os
import random
from dataclasses import dataclass, replace
from pathlib import Path

import cocotb
from cocotb.triggers import RisingEdge

from weft.hdl import abi
from weft.hdl.adamap.adamap import Adamap
from weft.hdl.adamap.control import QpRef
from weft.hdl.layouts import JudgeRequest, ListCreate
from weft.hdl.params import preset
from weft.tb.blocks.adamap.made_lists import LineMemory, now, open_extent, pass_cycles
from weft.tb.blocks.adamap.with_qp_table import WithQpTable, write_qp
from weft.tb.flow.clock import start_clock
from weft.tb.flow.payload import pack
from weft.tb.flow.simulate import bench_seed, simulate
from weft.tb.flow.stream import StreamSource
from weft.tb.measure.benchmark import Row
from weft.tb.measure.losses import FIRST_PSN, PACKET_CYCLES, batches, nodes_of

MATCHES = 2400          # of all QPs together
READ_CYCLES = 250       # 1 µs
FIRST_LINE, LINE_STRIDE = 64, 3
REST_CYCLES = 2000      # longer than the fetches under way take


@dataclass(frozen=True)
class Case:
    """One figure: so many QPs at once, ``depth`` nodes of each cached ahead, in the head cache of preset ``card``."""

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
    """Preset ``test`` with the head cache of another one."""
    like = preset(card)
    return replace(preset("test"), qps=max(16, like.cache_entries), knit_extents=1, match_queue=like.match_queue,
                   cache_entries=like.cache_entries, prefetch_depth_max=like.prefetch_depth_max)


class RecoveringQp:
    """A list and the retransmissions for it."""

    def __init__(self, case, qpn, generation, rng):
        self.who = {"qpn": qpn, "generation": generation}
        lost = batches(case.workload, -(-MATCHES // case.qps), rng)
        self.nodes = nodes_of(lost, qpn, generation)
        self.psns = [FIRST_PSN + at for batch in lost for at in batch][:-(-MATCHES // case.qps)]
        self.lines, self.sent = [], 0

    def requests(self):
        """Retransmissions in order, packed."""
        for rsn, psn in enumerate(self.psns):
            yield pack(JudgeRequest, **self.who, psn=psn % (1 << 24), rsn=rsn, retransmission=1)


class Room:
    """The room and host memory."""

    def __init__(self, dut):
        self.dut, self.hits, self.judged, self.blocks = dut, 0, 0, {}
        self.judge = StreamSource(dut, "i_judge", dut.clk)
        LineMemory(dut, lambda line: self.blocks.get(line, bytes(64)), lambda: READ_CYCLES)
        cocotb.start_soon(self._count())

    async def _count(self):
        """Hits come at most every other cycle."""
        while True:
            await RisingEdge(self.dut.count_cache_hits)
            await RisingEdge(self.dut.clk)
            self.hits += int(self.dut.count_cache_hits.value)

    def place(self, qps, rng):
        """Give the nodes of all lists, and a spare one each, a block; no two of a list follow each other."""
        lines = list(range(FIRST_LINE, FIRST_LINE + LINE_STRIDE * sum(len(qp.nodes) + 1 for qp in qps), LINE_STRIDE))
        rng.shuffle(lines)
        self.blocks.clear()
        for qp in qps:
            qp.lines = [lines.pop() for _ in range(len(qp.nodes) + 1)]
            for node, line, after in zip(qp.nodes, qp.lines, qp.lines[1:], strict=False):
                self.blocks[line] = node.pack(next_line=after, next_adjacent=0)

    async def ring(self, name, layout, **fields):
        data, strobe = getattr(self.dut, name), getattr(self.dut, f"{name}_stb")
        data.value, strobe.value = int.from_bytes(layout.pack(**fields), "little"), 1
        await RisingEdge(self.dut.clk)
        strobe.value = 0
        await RisingEdge(self.dut.clk)

    async def run(self, case, generation, rng):
        """All retransmissions of a case; the part of them that did not wait."""
        dut = self.dut
        dut.prefetch_depth.value = dut.prefetch_watermark.value = case.depth
        qps = [RecoveringQp(case, qpn, generation, rng) for qpn in range(case.qps)]
        self.place(qps, rng)
        create, destroy = StreamSource(dut, "i_create", dut.clk), StreamSource(dut, "i_destroy", dut.clk)
        for qp in qps:
            await write_qp(dut, **qp.who)
            await create.send(pack(ListCreate, **qp.who, psn=qp.psns[-1] + 1, line=qp.lines[0]))
            await self.ring("cum_doorbell", abi.CUM_DOORBELL, **qp.who, psn=FIRST_PSN)
            await self.ring("link_doorbell", abi.LINK_DOORBELL, **qp.who, nodes=len(qp.nodes))
        await pass_cycles(dut, REST_CYCLES)
        self.hits = 0
        streams = [qp.requests() for qp in qps]
        turns = [number for number, qp in enumerate(qps) for _ in qp.psns]
        rng.shuffle(turns)
        due = float(now())
        for number in turns:
            self.judge.send_nowait(next(streams[number]))
            due += PACKET_CYCLES
            await pass_cycles(dut, int(due) - now())
        await pass_cycles(dut, REST_CYCLES)
        while not int(dut.idle.value):
            await pass_cycles(dut, REST_CYCLES)
        for qp in qps:
            await destroy.send(pack(QpRef, **qp.who))
            await pass_cycles(dut, 50)
        return self.hits / len(turns)


@cocotb.test()
async def stalls(dut):
    """Leaves the figures by name in ``figures.json`` of the run's folder."""
    await start_clock(dut)
    dut.reorder_distance.value = dut.retransmit_slack.value = 1
    for sink in ("o_judgement", "o_qp_error", "o_report__0", "o_report__1"):
        getattr(dut, f"{sink}__ready").value = 1
    room = Room(dut)
    await open_extent(dut)
    figures, cases = {}, [Case(**case) for case in json.loads(os.environ["WEFT_CASES"])]
    for number, case in enumerate(cases):
        with open(os.environ["WEFT_PROGRESS"], "a") as file:
            file.write(json.dumps({"phase": case.name, "done": number, "total": len(cases)}) + "\n")
        figures[case.name] = await room.run(case, 1 + number % 255, random.Random(bench_seed()))
    Path(os.environ["WEFT_RUN"], "figures.json").write_text(json.dumps(figures))


def measure(progress, cases=CASES, sim="verilator"):
    """A row for each case."""
    figures = {}
    for card in {case.card: None for case in cases}:
        mine = [vars(case) for case in cases if case.card == card]
        run = simulate(WithQpTable(Adamap(card_params(card))), name=f"adamap_interleaved_{card}", cases=__file__,
                       sim=sim, seed=1, optimize="run", timeout_s=1800,
                       env={"WEFT_CASES": json.dumps(mine), "WEFT_PROGRESS": str(progress)})
        figures |= json.loads((run / "figures.json").read_text())
    return [Row(case.name, "of matches", figures[case.name], conditions=case.conditions) for case in cases]
