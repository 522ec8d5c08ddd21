"""Tests of matcher and head cache against the functional model: outcome of each header, retired nodes."""

import os

import cocotb
import pytest

from weft.hdl.contract import abi
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.adamap.matcher_traffic import Bench, subsystem
from weft.tb.test.volume import volume

WANTED = [*(("retired", encoding, how) for encoding in abi.Encoding for how in ("with residue", "finished")),
          "OK", "STALE_GENERATION", "STALE_RSN", "NOT_IN_NODE", "DUPLICATE",
          "cache_hits", "cache_misses", "retired by a probe", "ticket of a header", "evicted", "no place",
          ("ordered out", False), ("ordered out", True), "destroyed with nodes cached", "destroyed while waiting",
          "fetch of a dead list", "dead list", "queue full", "several left at once", "RSNs wrap",
          "order after headers", "order of a probe", "order of an earlier incarnation", "order with slack",
          "order goes further",
          "order stays", "orders of three lists", "retired by an order", "destroyed with an order"]


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def random_headers(dut):
    bench = await Bench.start(dut)
    rng, turns = bench.rng, int(os.environ["WEFT_TURNS"])
    for turn in range(800):
        if turn >= turns and all(bench.seen[subject] for subject in WANTED) and bench.seen["retired by an order"] > 20:
            break
        aimed = turn % 2        # nodes come late and headers are close together, so that orders retire nodes
        await bench.set(slack=rng.choice([0, 5] if aimed else [0, 1, 1, 2, 5, 40, 1 << 31]),
                        depth=rng.choice([1, 2, 3, 4]), watermark=rng.choice([1, 2, 4]))
        bench.prefetch.latency = rng.choice([(100, 200)] if aimed else [(1, 3), (5, 40), (100, 200)])
        bench.lists.reports.pause = rng.choice([0, 0.5, 0.97])
        bench.rate, bench.windowed = rng.choice([0.1, 0.5, 1]), aimed or rng.random() < 0.5
        for _ in range(rng.randint(50, 400)):
            await bench.edge
            qpn = bench.link_some(0.1)
            if rng.random() < (0.003 if turn < turns else 0.015):   # rare cases are those of ends
                bench.end([rng.choice([qpn, *sorted({qpn for qpn, _ in bench.lists.ordered})])])
        bench.lists.reports.pause = 0
        await bench.drain()
    dut._log.info("%d cycles: %s", bench.lists.now, dict(bench.seen))
    assert all(bench.seen[subject] for subject in WANTED), [subject for subject in WANTED if not bench.seen[subject]]


@pytest.mark.parametrize("sim", SIMULATORS)
def test_headers_and_nodes_agree_with_the_model(sim):
    simulate(subsystem(), name="adamap_matcher", cases=__file__, sim=sim,
             env={"WEFT_TURNS": "5" if sim == "icarus" else volume("8", "20")})
