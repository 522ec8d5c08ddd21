"""Random operations of all kinds over two real cards."""

import os

import cocotb
from cocotb.task import bridge

from weft.driver.verbs.context import ContextConfig
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.two_cards import SIDES
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.verify.operations.traffic import KINDS, Traffic

COUNT = int(os.environ.get("WEFT_OPERATIONS", "150"))
ROUGH = LinkConfig(delay_ns=1_000, loss=0.02, duplicate=0.02, reorder=0.02)
QPS, LONGEST, ARENA = 6, 4_096, 1 << 18
DISTANCE = 64      # covers a microsecond of the smallest frames


@cocotb.test(timeout_time=200, timeout_unit="ms")
async def operations(dut):
    """Losses, and fewer memory regions on the cards than all operations would like to have windows."""
    config = ContextConfig(ring_log2=7, probe_timeout_ns=25_000, reorder_distance=DISTANCE, retransmit_slack=DISTANCE)
    pair = RtlPair(dut, EnvConfig(ROUGH, ROUGH), config, seed=bench_seed(), judged=False)
    await pair.start()
    done = {}
    await bridge(_run)(pair, done)
    counts = done["counts"]
    cocotb.log.info("%s", dict(counts))
    assert all(counts[kind.name] for kind in KINDS) and counts["completed"] >= COUNT
    for direction in ("a_to_b", "b_to_a"):
        assert pair.env.link(direction).counters.destroyed.total() or COUNT < 100
    for guard in pair.guards.values():
        guard.check()


def _run(pair, done):
    """One thread drives both hosts: what it looks at of either does not change meanwhile."""
    contexts = [pair.contexts[side] for side in SIDES]
    device = contexts[0].device
    traffic = Traffic(contexts, lambda ns: device.wait(max(1_000, ns)), bench_seed(), qps=QPS, longest=LONGEST,
                      arena=ARENA)
    done["counts"] = traffic.run(COUNT)
    traffic.close()
