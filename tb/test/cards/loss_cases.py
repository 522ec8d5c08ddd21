"""Loss patterns with two RTL cards, and losses with far too few knitting blocks.

The patterns also lose retransmissions. Each loss is repaired once; only losses at a tail wait for a timer.
"""

import json
import os
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import cocotb
from cocotb.utils import get_sim_time

from weft.hdl.contract import abi, wire
from weft.model.impairments import FrameKind, LinkConfig
from weft.model.loss import GilbertElliott
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.test.cards.crossing_cases import LOSS_REPORT, PACKETS, PROBE, Case, Crossing, psn_of
from weft.tb.test.loss_models import Burst, Comb, Outage
from weft.tb.test.tail import Tail

PMTU = 256
SOON = 200      # packets in which a random pattern causes at least one loss
SILENCE_NS = 10_000     # no burst lasts longer


@dataclass(frozen=True)
class RepeatedLoss:
    """Every ``every``-th packet is lost ``times`` times: the original and its first retransmissions."""

    every: int
    times: int


class LossyPath:
    """Plants a loss model on the path from A to B, for data and retransmissions only.

    A burst is counted in packets, but disturbances of a wire have a duration. When a single retransmission is left, one
    packet in tens of microseconds, a burst of 64 would lose it until the sender gives up. So a burst ends after
    ``SILENCE_NS`` without packets.

    Attributes
    ----------
    lost : Counter
        How often each packet was lost, by (QPN, PSN).
    tail : Tail
    """

    def __init__(self, model):
        self.model, self.lost, self.tail = model, Counter(), Tail()

    def __call__(self, crossing):
        self._lost = self._start()
        crossing.drop("a_to_b", "pattern", self._chosen)
        crossing.drop("b_to_a", "no loss report", self._note)

    def _start(self):
        model = self.model
        if isinstance(model, RepeatedLoss):
            return lambda _now, packet: packet[1] % model.every == 0 and self.lost[packet] < model.times
        attempt = 0
        while isinstance(model, GilbertElliott) and not any(map(model.start(self._rng(attempt)), range(SOON))):
            attempt += 1
        lost = model.start(self._rng(attempt))
        began = last = get_sim_time("ns")

        def chosen(now, _packet):
            nonlocal lost, last
            if isinstance(model, GilbertElliott) and now - last > SILENCE_NS:
                lost = model.start(self._rng(f"{attempt} at {now}"))
            last = now
            return lost(now - began)

        return chosen

    @staticmethod
    def _rng(stream):
        return random.Random(f"{bench_seed()}/{stream}")

    def _note(self, frame, kind):
        if kind in LOSS_REPORT:
            self.tail.answered(frame)
        return False

    def _chosen(self, frame, kind):
        if kind not in PACKETS | PROBE:
            return False
        gone = False
        if kind in PACKETS:
            packet = wire.BTH.unpack(frame[wire.BTH_OFFSET:]).dest_qp, psn_of(frame)
            gone = self._lost(get_sim_time("ns"), packet)
            self.lost[packet] += gone
        self.tail.sent(frame, gone)
        return gone


async def cross(dut, model, *, length=60_000, qps=2, **driver):
    """Run a transfer with these losses; Crossing compares bytes, and retransmissions with losses."""
    path = LossyPath(model)
    case = Case({"a": [length // qps // 4] * 4, "b": []}, qps=qps, pmtu=PMTU, driver=driver)
    crossing = await Crossing(dut, case, path).run()
    board = crossing.pair.scoreboards["b"]
    board.require("loss")
    assert crossing.dropped["pattern"] == path.lost.total() > 0
    assert not crossing.sums["a"]["probes_midway"], "a timer ran out in the middle"
    found = board.seen["found by probe"]
    assert found <= path.tail.packets, f"{found} packets waited for a probe, {path.tail.packets} were at a tail"
    dut._log.info("%d losses of %d packets, %d at a tail, %d found by a probe", path.lost.total(),
                  sum(count > 0 for count in path.lost.values()), path.tail.packets, found)
    return path, board


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def comb(dut):
    """Every seventh frame is lost."""
    await cross(dut, Comb(7, 2))


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def holes_reported_at_once(dut):
    """With a node for each hole, retransmissions come faster than nodes are read, and the match queue is full."""
    _, board = await cross(dut, Comb(4, 2), length=120_000, qps=1, node_age_ns=0)
    assert board.seen["UNMATCHED"] > 10


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def bursts_of_8(dut):
    await cross(dut, GilbertElliott(8, 0.1))


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def bursts_of_64(dut):
    await cross(dut, GilbertElliott(64, 0.2))


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def burst_of_512(dut):
    """A single burst of that length, then no loss, so that the run stays short."""
    path, _ = await cross(dut, Burst(40, 512), length=180_000, qps=1)
    assert path.lost.total() == 512


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def outages(dut):
    """Nothing arrives for a microsecond, again and again."""
    await cross(dut, Outage(2_000, 1_000, 4_000))


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def lost_repeatedly(dut):
    """Every ninth packet is lost three times."""
    path, board = await cross(dut, RepeatedLoss(9, 3))
    board.require("second loss", "third loss")
    assert set(path.lost.values()) - {0} == {3}


# ------------------------------------------------------------------------------------------------- pools


async def cross_with_blocks(dut, blocks, **driver):
    """Run a transfer that loses a quarter of the originals and few retransmissions, the tenth among them.

    Each hole has a separate node as far as there are blocks.
    """
    path = LinkConfig(delay_ns=12_000)
    case = Case({"a": [54_000] * 3, "b": []}, pmtu=PMTU, there=path, back=path,
                driver={"extent_bytes": blocks * abi.BLOCK_BYTES, "max_extents": 1, "node_age_ns": 0,
                        "probe_timeout_ns": 60_000, "prefetch_depth": 16, "prefetch_watermark": 16, **driver})
    rng, chance = random.Random(bench_seed()), {FrameKind.DATA: 0.25, FrameKind.RETX: 0.03}
    seen = Counter()

    def lost(_frame, kind):
        seen[kind] += 1
        return rng.random() < chance.get(kind, 0) or (kind is FrameKind.RETX and seen[kind] == 10)

    crossing = await Crossing(dut, case, lambda c: c.drop("a_to_b", "lost", lost)).run()
    crossing.pair.scoreboards["b"].require("loss", "second loss")
    return crossing


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def enough_blocks(dut):
    """Write the peak demand to ``peak.json``."""
    blocks = 1024
    crossing = await cross_with_blocks(dut, blocks)
    assert not crossing.sums["b"]["waited"] and not crossing.sums["b"]["coarsened"]
    Path(os.environ["WEFT_RUN"], "peak.json").write_text(json.dumps(blocks - crossing.low_water["b"]))


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def few_blocks(dut):
    """With the number of blocks in the environment, holes wait, become spans, and the peer has to stop."""
    crossing = await cross_with_blocks(dut, int(os.environ["WEFT_BLOCKS"]), waiting_runs_max=16)
    assert crossing.sums["b"]["waited"] and crossing.sums["b"]["coarsened"] and crossing.sums["b"]["limits"]
    crossing.pair.scoreboards["b"].require("span")
