"""Fuzzing two real cards under their drivers: frames made from genuine ones come in at both MACs at line rate.

As :mod:`~weft.tb.verify.fuzz.functional`, in rounds within one simulation: what a round left behind is there in the
next.
"""

import json
import os
import random
from collections import Counter

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer

from weft.driver.application.file_transfer import Endpoint
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.tb.sim.flow.progress import tell
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.hostile.hostile_pair import HostilePair
from weft.tb.sim.pair.sides import PEER
from weft.tb.sim.pair.two_cards import SIDES
from weft.tb.verify.fuzz.traffic import LENGTH, PART, Overheard, check_quiet, check_write, has_ended, post_write

FRAMES = int(os.environ.get("WEFT_FUZZ_FRAMES", 600))      # to both cards together
ROUND, BURST = 2_000, 40
STEP_NS, PATIENCE = 1_000, 4_000


class Fuzzing:
    """Both sides, and what a round does."""

    def __init__(self, pair, rng):
        self.pair, self.rng = pair, rng
        self.kinds, self.overheard = Counter(), {side: Overheard(rng) for side in SIDES}
        self.ends, self.honest, self.cqs, self.victims = {}, {}, {}, {}

    async def open(self):
        for side in SIDES:
            self.ends[side] = await bridge(Endpoint)(self.pair.contexts[side], LENGTH)
            self.honest[side] = self.ends[side].qps[0]
        for side, peer in PEER.items():
            await bridge(self.ends[side].connect)(self.ends[peer].connections)
            self.pair.env.link(f"{side}_to_{peer}").impairments.drop_when(
                lambda frame, _kind, side=peer: self.overheard[side].hear(
                    frame, victim=self.victims.get(side), honest=self.honest[side]))

    async def step(self):
        """Time passes, and both drivers look."""
        await Timer(STEP_NS, "ns")
        for side in SIDES:
            await bridge(self.pair.contexts[side].progress)()

    async def transfer(self, qps, cqs):
        """A write each way, to the end of the peer's memory: completions and bytes are right."""
        data = {}
        for side, peer in PEER.items():
            data[peer] = self.rng.randbytes(PART)
            await bridge(post_write)(self.ends[side], self.ends[peer], qps[side], qps[peer], data[peer])
        for _ in range(PATIENCE):
            await self.step()
            if all(map(has_ended, cqs.values())):
                break
        for side in SIDES:
            check_write(self.ends[side], cqs[side], data[side])

    async def round(self, frames):
        """A new pair of victims, and so many frames."""
        for side in SIDES:
            cq = self.cqs[side] = await bridge(CQ)(self.pair.contexts[side], 64)
            self.victims[side] = await bridge(QP)(self.ends[side].pd, rc_init_attr(cq))
            self.overheard[side].forget()
        for side, peer in PEER.items():
            await bridge(self.victims[side].connect)(self.victims[peer].connection, path_mtu=1, timeout=5)
        await self.transfer(self.victims, self.cqs)
        await self.transfer(self.honest, {side: self.ends[side].cq for side in SIDES})
        fuzzers = {side: self.overheard[side].fuzzer() for side in SIDES}
        for _ in range(0, frames, 2 * BURST):
            for side in SIDES:
                for _ in range(BURST):
                    self.pair.env.sides[side].mac_rx.receive(fuzzers[side].draw())
            while self.pair.env.frames_in_flight:
                await self.step()
        for _ in range(BURST):
            await self.step()
        for side in SIDES:
            check_quiet(self.cqs[side])
            self.pair.guards[side].check()
        await self.transfer(self.honest, {side: self.ends[side].cq for side in SIDES})
        for side in SIDES:
            await bridge(self.victims.pop(side).close)()
            await bridge(self.cqs.pop(side).close)()
            self.kinds += fuzzers[side].drawn

    async def close(self):
        for side in SIDES:
            await bridge(self.ends[side].close)()
            blocks = self.pair.contexts[side].knitting.check()
            assert blocks["free"] == sum(blocks.values()), blocks


@cocotb.test(timeout_time=2, timeout_unit="sec")
async def fuzz(dut):
    pair = HostilePair(dut)
    await pair.start()
    fuzzing = Fuzzing(pair, random.Random(f"fuzz {bench_seed()}"))
    await fuzzing.open()
    for done in range(0, FRAMES, ROUND):
        await fuzzing.round(min(ROUND, FRAMES - done))
        tell(os.environ.get("WEFT_PROGRESS"), "fuzzing the RTL", done + ROUND, FRAMES)
    drops = {side: await bridge(pair.new_drops)(side) for side in SIDES}
    await fuzzing.close()
    pair.finish()
    with open("fuzz.json", "w") as file:
        json.dump({"frames": sum(fuzzing.kinds.values()), "kinds": fuzzing.kinds, "drops": drops}, file)
