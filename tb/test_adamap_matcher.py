"""The matcher with its head cache against the functional model: what becomes of each header, and which nodes leave."""

import random
from collections import deque

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hdl import abi
from weft.hdl.params import preset
from weft.model.functional.node import Node
from weft.tb.clock import start_clock
from weft.tb.matcher_lists import Header, Lists
from weft.tb.matcher_prefetch import BenchPrefetch
from weft.tb.random_nodes import random_node
from weft.tb.sim import SIMULATORS, bench_seed, simulate
from weft.tb.with_head_cache import WithHeadCache

QPS = 4
PARAMS = preset("test").with_(qps=QPS, cache_entries=8, prefetch_depth_max=8, match_queue=8, knit_extents=2,
                              block_bits=9)
EXTENTS = (0x1000, (1 << 58) - 5000)
WANTED = [*(("retired", encoding, how) for encoding in abi.Encoding for how in ("with residue", "finished")),
          "OK", "STALE_GENERATION", "STALE_RSN", "NOT_IN_NODE", "DUPLICATE",
          "cache_hits", "cache_misses", "retired by a probe", "ticket of a header", "turned out", "no place",
          ("ordered out", False), ("ordered out", True), "destroyed with nodes cached", "destroyed while waiting",
          "fetch of a dead list", "queue full"]


class Bench:
    """Sends headers: all that a window can let pass, in any order the slack allows or does not."""

    def __init__(self, dut, rng):
        self.dut, self.rng, self.edge = dut, rng, RisingEdge(dut.clk)
        self.lists = Lists(dut, rng, PARAMS)
        self.prefetch = BenchPrefetch(dut, rng, self.lists, PARAMS.cache_entries)
        self.seen = self.lists.seen
        self.todo = {qpn: deque() for qpn in range(QPS)}    # (psn, rsn) of linked holes that were not sent
        self.old = {qpn: deque(maxlen=60) for qpn in range(QPS)}
        self.ready = deque()        # headers to be sent before any random ones, which come at a rate
        self.rate, self.ticket = 0.0, 0

    async def start(self):
        for k, base in enumerate(EXTENTS):
            getattr(self.dut, f"extent_base__{k}").value = base
        for qpn in range(QPS):
            self.lists.create(qpn, self.rng.randrange(256), self.rng.choice([0, (1 << 24) - 30, (1 << 32) - 30]))
        for task in (self.lists.watch(), self.prefetch.run(), self.send()):
            cocotb.start_soon(task)
        await self.edge

    async def set(self, *, slack, depth, watermark):
        """The registers, while nothing is under way; lists of more nodes than may be cached end here."""
        self.end(one.qpn for one in self.lists.lists.values() if len(one.cached) > depth)
        while not self.prefetch.idle:
            await self.edge
        self.lists.slack, self.lists.depth, self.prefetch.watermark = slack, depth, watermark
        self.dut.retransmit_slack.value, self.dut.prefetch_depth.value = slack, depth

    def end(self, qpns):
        """These lists are destroyed and created again."""
        for qpn in qpns:
            self.todo[qpn].clear()
            self.old[qpn].clear()
            self.prefetch.orders.append(qpn)

    def link(self, qpn, node=None):
        rng, one = self.rng, self.lists.lists[qpn]
        node = node or random_node(rng, qpn=qpn, generation=one.generation, rsn=one.next_rsn)
        extent, offset = rng.randrange(len(EXTENTS)), rng.randrange(200)
        one.link(node, extent << PARAMS.extent_blocks_log2 | offset, EXTENTS[extent] + offset)
        self.todo[qpn] += [(psn, node.rsn + k) for k, psn in enumerate(node.psns)]
        self.prefetch.look_at(qpn)

    def header(self, qpn, psn, rsn, *, generation=None, probe=False):
        self.ticket += self.rng.randint(0, 2)
        generation = self.lists.lists[qpn].generation if generation is None else generation
        return Header(qpn, generation, psn % (1 << 32), rsn % (1 << 24), probe, self.ticket)

    def traffic(self):
        """A header of some QP, or None."""
        rng = self.rng
        qpn = rng.choice([q for q in range(QPS) if q not in self.prefetch.frozen] or [None])
        one = self.lists.lists.get(qpn)
        if one is None or not one.live:
            return None
        todo, old, kind = self.todo[qpn], self.old[qpn], rng.random()
        if kind < 0.06 and todo:
            todo.popleft()                          # lost
        if kind < 0.75 and todo:
            if self.lists.slack > 1 and len(todo) > 1 and kind < 0.4:
                todo.rotate(-1)
                psn, rsn = todo.popleft()
                todo.rotate(1)
            else:
                psn, rsn = todo.popleft()
            old.append((psn, rsn))
            return self.header(qpn, psn, rsn)
        if kind < 0.85 and old:
            return self.header(qpn, *rng.choice([old[-1], old[-1], rng.choice(old)]))
        if kind < 0.90 and old:
            psn, rsn = rng.choice([old[-1], *list(todo)[:1]])
            return self.header(qpn, psn + rng.choice([1, -1, 320, 1 << 31]), rsn)
        if kind < 0.93:
            psn, rsn = todo[0] if todo else (0, one.next_rsn)
            return self.header(qpn, 0, rng.choice([rsn, rsn, rsn - 1, one.next_rsn]), probe=True)
        if kind < 0.95 and old:
            return self.header(qpn, *old[-1], generation=(one.generation - 1) % 256)
        if kind < 0.96 and one.order:
            return self.header(qpn, 0, one.order[0].rsn - rng.choice([1, 100, 1 << 20]))
        if kind < 0.97:
            return self.header(qpn, 0, one.next_rsn + rng.choice([0, 1, 9, 1 << 16]))
        return None

    def may_link(self, qpn):
        """No header is under way that is beyond the end of the list: what becomes of it must not be a race."""
        one = self.lists.lists[qpn]
        return one.live and not any((h.rsn - one.next_rsn) % (1 << 24) < 1 << 23 for h in self.lists.under_way[qpn])

    async def send(self):
        """Headers at a rate, one cycle after ``room`` was seen."""
        dut, rng, valid = self.dut, self.rng, False
        while True:
            await self.edge
            assert not valid or int(dut.i__ready.value), "a header was not taken at once"
            room, under_way = int(dut.room.value), sum(map(len, self.lists.under_way.values()))
            self.seen["queue full"] += not room
            header = None
            # Two in a row must both find a place.
            if room and (not valid or under_way < PARAMS.match_queue - 1):
                if self.ready:
                    header = self.ready.popleft()
                elif rng.random() < self.rate:
                    header = self.traffic()
            dut.i__payload.value = self.lists.sent(header) if header else rng.getrandbits(len(dut.i__payload))
            dut.i__valid.value = valid = header is not None

    async def drain(self):
        """Until nothing is under way."""
        self.rate = 0
        quiet = 0
        while quiet < 8:
            await self.edge
            busy = not self.prefetch.idle or not int(self.dut.idle.value) or len(self.lists.reports)
            quiet = 0 if busy else quiet + 1
        self.lists.check_settled()


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def random_headers(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    bench = Bench(dut, rng)
    await bench.start()
    for turn in range(120):
        if turn >= 20 and all(bench.seen[what] for what in WANTED):
            break
        await bench.set(slack=rng.choice([0, 1, 1, 2, 5, 40, 1 << 31]), depth=rng.choice([1, 2, 3, 8]),
                  watermark=rng.choice([1, 2, 4]))
        bench.prefetch.latency = rng.choice([(1, 3), (5, 40), (100, 200)])
        bench.lists.reports.pause = rng.choice([0, 0, 0.5, 0.97])
        bench.rate = rng.choice([0.1, 0.5, 1])
        for _ in range(rng.randint(50, 400)):
            await bench.edge
            qpn = rng.randrange(QPS)
            if rng.random() < 0.1 and len(bench.todo[qpn]) < 20 and bench.may_link(qpn):
                bench.link(qpn)
            if rng.random() < 0.003:
                bench.end([qpn])
        bench.lists.reports.pause = 0
        await bench.drain()
    dut._log.info("%d cycles: %s", bench.lists.now, dict(bench.seen))
    assert all(bench.seen[what] for what in WANTED), [what for what in WANTED if not bench.seen[what]]


def node(one, *holes):
    """The next node of a list."""
    return Node(one.qpn, one.generation, 1000, one.next_rsn, abi.Encoding.LIST, holes)


@cocotb.test(timeout_time=40, timeout_unit="us")
async def head_that_has_finished_makes_room_for_the_next_node(dut):
    """Its successor need not leave with open holes."""
    await start_clock(dut)
    bench = Bench(dut, random.Random(bench_seed()))
    await bench.start()
    for distance in range(12):
        await bench.set(slack=40, depth=2, watermark=2)
        one = bench.lists.lists[0]
        for _ in range(3):
            bench.link(0, node(one, 0, 5))
        while len(one.cached) < 2:
            await bench.edge
        headers = [bench.header(0, psn, rsn) for psn, rsn in bench.todo[0]]
        bench.ready += headers[:2]
        while bench.ready:
            await bench.edge
        await ClockCycles(dut.clk, distance + 1)
        bench.ready.append(headers[4])
        await bench.drain()
        assert one.left == 1 and bench.seen["OK"] == 3 * (distance + 1)
        bench.end([0])


@cocotb.test(timeout_time=40, timeout_unit="us")
async def depth_may_be_lowered(dut):
    """A header for a node further on gets there though the list holds more nodes than it may."""
    await start_clock(dut)
    bench = Bench(dut, random.Random(bench_seed()))
    await bench.start()
    await bench.set(slack=40, depth=8, watermark=4)
    one = bench.lists.lists[0]
    for _ in range(6):
        bench.link(0, node(one, 0, 5))
    while len(one.cached) < 4:
        await bench.edge
    bench.lists.depth = dut.prefetch_depth.value = 1
    bench.ready.append(bench.header(0, *bench.todo[0][-1]))
    await bench.drain()
    assert one.left == 5 and bench.seen["OK"] == 1


@pytest.mark.parametrize("sim", SIMULATORS)
def test_headers_and_nodes_agree_with_the_model(sim):
    simulate(WithHeadCache(PARAMS), name="adamap_matcher", bench="weft.tb.test_adamap_matcher", sim=sim)
