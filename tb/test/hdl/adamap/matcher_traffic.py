"""Headers for the matcher, with their lists."""

import functools
import random
from collections import deque

import cocotb
from cocotb.triggers import RisingEdge

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.model.functional.node import Node
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.stream.clock import start_clock
from weft.tb.test.hdl.adamap.matched_list import Header, payload
from weft.tb.test.hdl.adamap.matcher_watch import MatcherWatch
from weft.tb.test.hdl.adamap.prefetch_stand_in import BenchPrefetch
from weft.tb.test.hdl.adamap.random_nodes import random_node
from weft.tb.test.hdl.adamap.with_head_cache import WithHeadCache

QPS = 4     # at a time; every QPN is valid: neither matcher nor cache keeps state per QP
PARAMS = preset("test").with_(qps=1 << 24, cache_entries=4, prefetch_depth_max=4, match_queue=16, knit_extents=2,
                              block_bits=9, unmatched_lists=3)
EXTENTS = (0x1000, (1 << 58) - 5000)


@functools.cache
def subsystem():
    """Return the simulated design, one instance for a process: the tests of several files share its Verilog."""
    return WithHeadCache(PARAMS)


def list_node(one, *holes):
    """Return the next node of a list, of encoding LIST."""
    return Node(one.qpn, one.generation, 1000, one.next_rsn, abi.Encoding.LIST, holes)


class Bench:
    """Sends headers: all that a window can pass, in any order, inside the slack or not."""

    def __init__(self, dut, rng):
        self.dut, self.rng, self.edge = dut, rng, RisingEdge(dut.clk)
        self.lists = MatcherWatch(dut, rng, PARAMS)
        self.prefetch = BenchPrefetch(dut, rng, self.lists, PARAMS.cache_entries)
        self.seen = self.lists.seen
        self.todo, self.old = {}, {}    # by QPN, (psn, rsn) of linked holes that were not sent, and that were
        self.ready = deque()        # headers sent before random ones, without regard to the rate
        self.rate, self.ticket = 0.0, self.lists.ticket
        self.windowed = self.showing = False
        self.overfull = False       # headers come even when there is no free order for them

    @classmethod
    async def start(cls, dut):
        """Start the clock and begin every list."""
        await start_clock(dut)
        bench = cls(dut, random.Random(bench_seed()))
        for k, base in enumerate(EXTENTS):
            getattr(dut, f"extent_base__{k}").value = base
        bench.begin(range(QPS))
        await bench.lists.follow()
        for task in (bench.lists.watch(), bench.prefetch.run(), bench.send()):
            cocotb.start_soon(task)
        await bench.edge
        return bench

    def begin(self, qpns):
        """Create the lists of these QPs, one for each row, and no others; no node is cached, no header outstanding."""
        self.lists.lists.clear()
        for qpn in qpns:
            self.todo[qpn], self.old[qpn] = deque(), deque(maxlen=60)
            self.lists.create(qpn, self.rng.randrange(256), self.rng.choice([0, (1 << 24) - 30, (1 << 32) - 30]))

    async def set(self, *, slack, depth, watermark):
        """Set the registers while no header is outstanding; lists with more cached nodes than allowed are destroyed."""
        self.end(one.qpn for one in self.lists.lists.values() if len(one.cached) > depth)
        while not self.prefetch.idle:
            await self.edge
        self.lists.slack, self.lists.depth, self.prefetch.watermark = slack, depth, watermark
        self.dut.retransmit_slack.value, self.dut.prefetch_depth.value = slack, depth

    async def cached(self, one, nodes):
        """Wait until ``nodes`` nodes of a list are cached."""
        while len(one.cached) < nodes:
            await self.edge

    def end(self, qpns):
        """Destroy these lists and create them again."""
        for qpn in qpns:
            self.todo[qpn].clear()
            self.old[qpn].clear()
            self.prefetch.orders.append(qpn)

    def link(self, qpn, node=None):
        """Link this node, or a random one."""
        rng, one = self.rng, self.lists.lists[qpn]
        node = node or random_node(rng, qpn=qpn, generation=one.generation, rsn=one.next_rsn)
        extent, offset = rng.randrange(len(EXTENTS)), rng.randrange(200)
        one.link(node, extent << PARAMS.extent_blocks_log2 | offset, EXTENTS[extent] + offset)
        self.todo[qpn] += [(psn, node.rsn + k) for k, psn in enumerate(node.psns)]
        self.prefetch.look_at(qpn)

    def header(self, qpn, psn, rsn, *, generation=None, probe=False):
        self.ticket += self.rng.choice([0, 1, 2, 25] if self.windowed else [0, 1, 2])
        self.lists.ticket = self.ticket     # placement keeps up with it, whatever the outcome of the header is
        generation = self.lists.lists[qpn].generation if generation is None else generation
        old = 0 if self.windowed else self.rng.choice([0, 0, 0, 30])     # perhaps of a packet that was placed already
        return Header(qpn, generation, psn % (1 << 32), rsn % (1 << 24), probe, self.ticket - old)

    def traffic(self):
        """Return a header of some QP, or None."""
        rng = self.rng
        qpn = rng.choice([q for q in self.lists.lists if q not in self.prefetch.frozen] or [None])
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
        if kind < (0.96 if self.windowed else 0.95) and old:
            return self.header(qpn, *old[-1], generation=(one.generation - 1) % 256)
        if kind < 0.97 and one.order:
            return self.header(qpn, 0, one.order[0].rsn - rng.choice([1, 100, 1 << 20]))
        if kind < 0.98 and not one.ahead:       # or the outcome would depend on later nodes
            return self.header(qpn, 0, one.next_rsn + rng.choice([0, 1, 9, 1 << 16]))
        return None

    def link_some(self, chance):
        """Sometimes link a random node to a list with few holes to send."""
        qpn = self.rng.choice(list(self.lists.lists))
        if self.rng.random() < chance and len(self.todo[qpn]) < 20 and self.may_link(qpn):
            self.link(qpn)
        return qpn

    def may_link(self, qpn):
        """Return True if no outstanding header is beyond the end of the list: its outcome must not be a race."""
        one = self.lists.lists[qpn]
        return one.live and not self.lists.beyond_end(one)

    def _next(self):
        """Return the header to send next, or None."""
        if self.ready:
            return self.ready.popleft()
        return self.traffic() if self.rng.random() < self.rate else None

    async def send(self):
        """Send headers at a rate."""
        while True:
            while not self.windowed:
                await self._send()
            await self.edge
            self.dut.i__valid.value = 0
            while self.windowed:
                await self._send_as_window()

    async def _send(self):
        """Send as fast as possible: one cycle after ``subsystem`` was seen."""
        dut = self.dut
        await self.edge
        valid = int(dut.i__valid.value)
        assert not valid or int(dut.i__ready.value), "a header was not taken at once"
        subsystem, outstanding = int(dut.space.value), sum(map(len, self.lists.outstanding.values()))
        self.seen["queue full"] += not subsystem
        # Two consecutive headers must both find an entry, whatever orders come between them.
        several = outstanding < PARAMS.match_queue - 1 - PARAMS.unmatched_lists
        header = self._next() if subsystem and (not valid or several) else None
        dut.i__payload.value = self.lists.sent(header) if header else self.rng.getrandbits(len(dut.i__payload))
        dut.i__valid.value = header is not None

    async def _send_as_window(self):
        """Show a header; without an entry, or when its list has its share, it is not matched."""
        dut, lists = self.dut, self.lists
        if (header := self._next()) is None:
            dut.i__payload.value = self.rng.getrandbits(len(dut.i__payload))
            await self.edge
            return
        self.showing = True
        key = header.qpn, header.generation
        dut.share_en.value, dut.share_index.value = 1, header.qpn
        await self.edge
        dut.i__payload.value = payload(header)
        await self.edge
        dut.share_en.value = 0
        subsystem = int(dut.space.value) and int(dut.share.value)
        self.seen["queue full"] += not int(dut.space.value)
        for _ in range(self.rng.choice([0, 0, 1, 3])):
            await self.edge
        dut.i__valid.value, dut.unmatched.value = subsystem, not subsystem
        if subsystem:
            lists.ordered.pop(key, None)
            lists.sent(header)
        elif key in lists.ordered or len(lists.ordered) < PARAMS.unmatched_lists:
            lists.not_matched(header)
        else:       # as far as the bench knows, the card has no free order
            dut.unmatched.value = self.overfull
        await self.edge
        dut.i__valid.value = dut.unmatched.value = 0
        self.showing = False

    async def drain(self):
        """Wait until no header is outstanding."""
        self.rate = 0
        quiet = 0
        while quiet < 8:
            await self.edge
            busy = self.showing or not self.prefetch.idle or not int(self.dut.idle.value) or len(self.lists.reports)
            quiet = 0 if busy else quiet + 1
        self.lists.check_settled()
