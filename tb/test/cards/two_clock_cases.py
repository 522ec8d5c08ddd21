"""Two cards whose MACs have separate clocks, and resets of the MACs during traffic."""

import random
from collections import Counter

import cocotb
from cocotb.task import bridge
from cocotb.triggers import Timer, gather

from weft.driver.application.file_transfer import Endpoint
from weft.driver.terms.enums import MTU, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.wr import SGE, SendWR
from weft.model.impairments import FrameKind, LinkConfig
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.judge.blocks import missing_blocks
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.settings import PEER, SIDES
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.test.rounds import rounds

QPS, MESSAGE, LENGTH = 2, 3_000, 120_000
RESETS, RESETS_MAX, APART_NS = 8, 80, (500, 2_500)
SILENCE_NS, SERVICE_NS = 1_000_000, 1_000
LINK = LinkConfig(delay_ns=2_000)


class MacResets:
    """Both sides write while the MACs are reset alternately; all data arrives.

    Resets continue until more than ``RESETS`` frames were found at a MAC, and writes as long as the resets.

    Attributes
    ----------
    counters : dict of side
    """

    def __init__(self, dut):
        self.rng, self.done = random.Random(bench_seed()), set()
        context = ContextConfig(probe_timeout_ns=25_000, node_age_ns=300)
        self.pair = RtlPair(dut, EnvConfig(a_to_b=LINK, b_to_a=LINK), context, seed=bench_seed())
        self.data, self.ends, self.over = {}, {}, False

    async def run(self):
        pair = self.pair
        await pair.start()
        assert pair.env.two_clocks
        for side in SIDES:
            self.ends[side] = await bridge(Endpoint)(pair.contexts[side], 2 * LENGTH, qps=QPS,
                                                     window=LENGTH // MESSAGE + 1)
        await pair.connect(self.ends, path_mtu=MTU.MTU_512, timeout=5)
        pair.scoreboards.clear()          # they know of losses on the link, but not of those in a MAC
        resets = cocotb.start_soon(self._reset_macs())
        await gather(*(bridge(self._write)(side) for side in SIDES))
        await resets
        for side, peer in PEER.items():
            assert self.ends[peer].mr.read(LENGTH, LENGTH) == self.data[side], f"bytes from {side} differ"
        self.counters, blocks, complaints = await pair.close()
        assert not complaints, complaints
        assert not any(map(missing_blocks, blocks.values())), blocks

    async def _reset_macs(self):
        env, seen = self.pair.env, Counter()
        for turn in rounds(seen, ["found"], least=RESETS, most=RESETS_MAX, times=RESETS + 1):
            await Timer(self.rng.randrange(*APART_NS), "ns")
            side = env.sides[SIDES[turn % len(SIDES)]]
            seen["found"] += (not side.mac_tx.idle()) + side.mac_rx.waiting
            await env.reset_mac(side.name)
        self.over = True

    def _write(self, side):
        """Write and compare, in the side's thread."""
        end, offer, context = self.ends[side], self.ends[PEER[side]].offer, self.pair.contexts[side]
        self.data[side] = self.rng.randbytes(LENGTH)
        end.mr.write(self.data[side])

        def post(k):
            at = MESSAGE * k
            wr = SendWR(wr_id=k, sg=[SGE(end.mr.buf + at, MESSAGE, end.mr.lkey)], opcode=WROpcode.RDMA_WRITE,
                        send_flags=SendFlags.SIGNALED)
            wr.set_wr_rdma(offer.rkey, offer.va + LENGTH + at)
            end.qps[k % QPS].post_send(wr)

        left = LENGTH // MESSAGE
        for k in range(left):
            post(k)
        while left:
            for wc in end.cq.wait(16, SILENCE_NS):
                assert wc.status is WCStatus.SUCCESS, wc
                if self.over:
                    left -= 1
                else:
                    post(wc.wr_id)
        self.done.add(side)
        while self.done < set(SIDES):
            context.progress()
            context.wait(SERVICE_NS)
        context.progress()


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def mac_resets(dut):
    """Frames in a MAC are lost and retransmitted; none is cut, and no card hangs."""
    run = MacResets(dut)
    await run.run()
    for side, peer in PEER.items():
        assert run.counters[side]["tx_retransmissions"], f"nothing of {side} was lost"
        assert not run.pair.env.link(f"{side}_to_{peer}").counters.lost[FrameKind.DATA]
