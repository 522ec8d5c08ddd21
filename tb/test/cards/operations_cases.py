"""Random operations of all kinds over two RTL cards."""

import cocotb

from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract.params import preset
from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.bench import given
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.settings import DIRECTIONS
from weft.tb.sim.pair.two_cards import run_cards
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.test.driver.operation.traffic import KINDS, Traffic

ROUGH = LinkConfig(delay_ns=1_000, loss=0.02, duplicate=0.02, reorder=0.02)
QPS, LONGEST, ARENA = 6, 4_096, 1 << 18
DISTANCE = 64      # covers a microsecond of the smallest frames


@cocotb.test(timeout_time=200, timeout_unit="ms")
async def operations(dut):
    """Run operations with losses, and with fewer memory regions on the cards than all operations request as windows."""
    config = ContextConfig(ring_log2=7, probe_timeout_ns=25_000, reorder_distance=DISTANCE, retransmit_slack=DISTANCE)
    pair = RtlPair(dut, EnvConfig(ROUGH, ROUGH), config, seed=bench_seed(), judged=False)
    await pair.start()
    count = given()
    counts = await pair.call(_run, pair, count)
    cocotb.log.info("%s", dict(counts))
    assert all(counts[kind.name] for kind in KINDS) and counts["completed"] >= count
    for direction in DIRECTIONS:
        assert pair.link(direction).counters.destroyed.total() or count < 100
    for guard in pair.guards.values():
        guard.check()


def _run(pair, count):
    """Run the traffic of both hosts in one thread, so that their state does not change during a check."""
    device = pair.contexts[0].device
    traffic = Traffic(pair.contexts, lambda ns: device.wait(max(1_000, ns)), bench_seed(), qps=QPS, longest=LONGEST,
                      arena=ARENA)
    counts = traffic.run(count)
    traffic.close()
    return counts


def run_operations(count):
    """Simulate ``count`` operations; raise AssertionError if one is wrong."""
    run_cards(preset("test"), __file__, count, timeout_s=590 + 7 * count)
