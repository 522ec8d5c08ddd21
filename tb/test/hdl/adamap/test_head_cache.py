"""Tests of the head cache against the functional model: all outputs of its three ports, in every cycle."""

import os
import random

import cocotb
import pytest

from weft.hdl.adamap.cache.head_cache import HeadCache
from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.model.functional.node import Node
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.test.hdl.adamap.head_cache_ports import Cycle, HeadCachePorts
from weft.tb.test.hdl.adamap.head_cache_traffic import LISTED, Traffic

ENTRIES = int(os.environ.get("CACHE_ENTRIES", "8"))
WANTED = [*((subject, encoding) for subject in ("read", "finished") for encoding in abi.Encoding),
          "hit", "hit after the head", "hit over the end of the RSNs", "miss", "stale generation", "two ripe heads",
          "full pool", "follows", "does not follow", "there already", "first", "last", "not the last", "residue",
          "nothing left", "flush of several", "flush beside reserved entries", "evicted", "given back",
          "fill beside a mark", "fill blocked by a mark", "fill beside a retirement", "head by fill and retirement",
          "of the list looked up", "two heads in a row", "settles", "fill of what is asked for",
          "fill of what is looked up", "mark after retirement", "read beside a mark", "read a cycle after a mark",
          "everything at once"]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def random_traffic(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    ports = HeadCachePorts(dut, ENTRIES)
    traffic = Traffic(rng, ports)
    for turn in range(400):
        if turn >= 20 and all(traffic.seen[subject] > 2 for subject in WANTED):
            break
        traffic.growing = rng.choice([0.1, 0.5, 0.8])
        for _ in range(50):
            c = traffic.cycle()
            await ports.cycle(c)
            traffic.after(c)
    dut._log.info("%d cycles: %s", traffic.now, dict(traffic.seen))
    assert all(traffic.seen[subject] for subject in WANTED), [subject for subject in WANTED
                                                              if not traffic.seen[subject]]


@cocotb.test(timeout_time=20, timeout_unit="us")
async def a_lookup_two_reads_a_mark_or_a_retirement_in_every_cycle(dut):
    await start_clock(dut)
    ports, nodes = HeadCachePorts(dut, ENTRIES), ENTRIES // 2
    holes = range(abi.LIST_HOLES)

    def node(k):        # of two lists in turn: heads of one leave every other cycle
        return Node(k % 2, 7, 1000 * k, len(holes) * (k // 2), abi.Encoding.LIST, tuple(holes))

    def cycle(k, **asks):
        reach = {"passed_rsn": k, "is_header": 1, "any_head": 0}
        return ports.cycle(Cycle(qpn=(k + 1) % 2, generation=7, rsn=k, reach=reach,
                                 **{"offer": node(k), "listed": k % 2, **asks}))

    for k in range(nodes):
        await cycle(k)
        await cycle(k, reserve=True)
    for k in range(nodes):
        for _ in range(LISTED):
            await cycle(k)
        assert await cycle(k, offer=node(k), line=k, fill=k)
    other = Node(2, 0, 0, 0, abi.Encoding.LIST, (0,))
    for k in range(nodes * len(holes)):     # a lookup, two reads, a mark, and a fetch of another list
        index, hole = divmod(k, len(holes))
        await cycle(k, offer=other, read=index, retire_read=index, mark=(index, hole),
                    reserve=not k % 2 and k < 2 * nodes, listed=2)
    await cycle(1)
    for k in range(nodes):                  # and a retirement
        assert k in ports.model.ripe
        await cycle(k, offer=other, listed=2, fill=None if k else nodes, read=k, retire_read=k, retire=k)
    await cycle(0)
    assert ports.now == nodes * (LISTED + 4 + len(holes)) + 2
    assert not ports.model.nodes(0) and not ports.model.nodes(1) and len(ports.model.nodes(2)) == 1


@pytest.mark.parametrize(("sim", "entries"), [*((sim, 8) for sim in SIMULATORS), ("icarus", 4)])
def test_ports_agree_with_the_model(sim, entries):
    params = preset("test").with_(cache_entries=entries, knit_extents=2, block_bits=9)
    simulate(HeadCache(params), name="adamap_head_cache", cases=__file__, sim=sim,
             env={"CACHE_ENTRIES": str(entries)})
