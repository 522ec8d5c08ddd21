"""Fuzzing two real cards under their drivers: frames made from genuine ones come in at both MACs at line rate.

As :mod:`~weft.tb.fuzz.functional`, in rounds within one simulation: what a round left behind is there in the next.
"""

import json
import os
import random

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer

from weft.driver.application.file_transfer import Endpoint
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.qp import QP, QPInitAttr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.cards.hostile_pair import HostilePair
from weft.tb.cards.open_pair import PEER
from weft.tb.flow.simulate import bench_seed
from weft.tb.fuzz.frames import QPN_AT, FrameFuzzer
from weft.tb.world.two_cards import SIDES

FRAMES = int(os.environ.get("WEFT_FUZZ_FRAMES", 600))      # to both cards together
ROUND, BURST = 2_000, 40
LENGTH, PART = 16_384, 4_096
STEP_NS, PATIENCE = 1_000, 4_000
LOST = 0.2


class Fuzzing:
    """Both sides, and what a round does."""

    def __init__(self, pair, rng):
        self.pair, self.rng = pair, rng
        self.kinds, self.genuine, self.spared = {}, {side: [] for side in SIDES}, {side: [] for side in SIDES}
        self.ends, self.honest, self.cqs, self.victims = {}, {}, {}, {}

    async def open(self):
        for side in SIDES:
            self.ends[side] = await bridge(Endpoint)(self.pair.contexts[side], LENGTH)
            self.honest[side] = self.ends[side].qps[0]
        for side, peer in PEER.items():
            await bridge(self.ends[side].connect)(self.ends[peer].connections)
            self.pair.env.link(f"{side}_to_{peer}").impairments.drop_when(
                lambda frame, _kind, peer=peer: self._seen(frame, peer))

    def _seen(self, frame, side):
        """Keep what is sent to the QPs of ``side``; some of what is for the victim is lost."""
        qpn = int.from_bytes(frame[QPN_AT:QPN_AT + 3], "big")
        if qpn == self.honest[side].qp_num:
            self.spared[side].append(bytes(frame))
        if side not in self.victims or qpn != self.victims[side].qp_num:
            return False
        self.genuine[side].append(bytes(frame))
        return self.rng.random() < LOST

    async def step(self):
        """Time passes, and both drivers look."""
        await Timer(STEP_NS, "ns")
        for side in SIDES:
            await bridge(self.pair.contexts[side].progress)()

    def _post(self, me, you, qp, peer, data):
        me.mr.write(data)
        peer.post_recv(RecvWR(7))
        wr = SendWR(1, sg=[SGE(me.mr.buf, PART, me.mr.lkey)], opcode=WROpcode.RDMA_WRITE_WITH_IMM, imm_data=5)
        wr.set_wr_rdma(you.mr.rkey, you.mr.buf + LENGTH - PART)
        qp.post_send(wr)

    async def transfer(self, qps, cqs):
        """A write each way, to the end of the peer's memory: completions and bytes are right."""
        data = {}
        for side, peer in PEER.items():
            data[peer] = self.rng.randbytes(PART)
            await bridge(self._post)(self.ends[side], self.ends[peer], qps[side], qps[peer], data[peer])
        for _ in range(PATIENCE):
            await self.step()
            if all(len(cqs[side]) >= 2 for side in SIDES):
                break
        for side in SIDES:
            found = sorted((wc.wr_id, wc.status) for wc in cqs[side].take(8)[1])
            assert found == [(1, WCStatus.SUCCESS), (7, WCStatus.SUCCESS)], (side, found)
            assert self.ends[side].mr.read(PART, LENGTH - PART) == data[side], f"the bytes of {side} differ"

    async def round(self, frames):
        """A new pair of victims, and so many frames."""
        for side in SIDES:
            cq = self.cqs[side] = await bridge(CQ)(self.pair.contexts[side], 64)
            self.victims[side] = await bridge(QP)(self.ends[side].pd, QPInitAttr(scq=cq, rcq=cq))
            self.genuine[side].clear()
            self.spared[side].clear()
        for side, peer in PEER.items():
            await bridge(self.victims[side].connect)(self.victims[peer].connection, path_mtu=1, timeout=5)
        await self.transfer(self.victims, self.cqs)
        await self.transfer(self.honest, {side: self.ends[side].cq for side in SIDES})
        fuzzers = {side: FrameFuzzer(self.rng, self.genuine[side], self.spared[side]) for side in SIDES}
        for _ in range(0, frames, 2 * BURST):
            for side in SIDES:
                for _ in range(BURST):
                    self.pair.env.sides[side].mac_rx.receive(fuzzers[side].draw())
            while self.pair.env.frames_in_flight:
                await self.step()
        for _ in range(BURST):
            await self.step()
        for side in SIDES:
            found = [(wc.wr_id, wc.status.name) for wc in self.cqs[side].take(64)[1]]
            assert not found and not self.cqs[side].overrun, f"completions of nothing on {side}: {found}"
            self.pair.guards[side].check()
        await self.transfer(self.honest, {side: self.ends[side].cq for side in SIDES})
        for side in SIDES:
            await bridge(self.victims.pop(side).close)()
            await bridge(self.cqs.pop(side).close)()
            for kind, number in fuzzers[side].drawn.items():
                self.kinds[kind] = self.kinds.get(kind, 0) + number

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
        if "WEFT_PROGRESS" in os.environ:
            with open(os.environ["WEFT_PROGRESS"], "a") as file:
                file.write(json.dumps({"phase": "fuzzing the RTL", "done": done + ROUND, "total": FRAMES}) + "\n")
    drops = {side: await bridge(pair.new_drops)(side) for side in SIDES}
    await fuzzing.close()
    pair.finish()
    with open("fuzz.json", "w") as file:
        json.dump({"frames": sum(fuzzing.kinds.values()), "kinds": fuzzing.kinds, "drops": drops}, file)
