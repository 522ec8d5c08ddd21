"""Stand-in around the matcher for the prefetcher, and for the creation and destruction of QPs."""

from collections import Counter, deque
from itertools import takewhile

from cocotb.triggers import RisingEdge

from weft.hdl.adamap.cache.cached import cached_record
from weft.hdl.adamap.window.control import ControlKind, ControlOp
from weft.hdl.part.layouts import QpRef
from weft.tb.sim.stream.payload import pack, unpack
from weft.tb.sim.stream.stream import StreamSink
from weft.tb.test.hdl.adamap.head_cache_traffic import LISTED

QUIET = 64      # cycles in which a ready header is matched, however many headers of other lists are ready


class BenchPrefetch:
    """Prefetcher that fills the cache one step at a time, after a link, a demand or a fill of a list.

    A fetch takes an entry when it completes. Without a free entry the node is kept, and filled when its list is checked
    again.

    Attributes
    ----------
    latency : tuple of int
        Cycles of a fetch, at least and at most.
    watermark : int
        Cached nodes of a list without waiting headers.
    frozen : set of QPN
        No header may be sent to these.
    orders : deque of QPN
        QPs to destroy and create again.
    """

    def __init__(self, dut, rng, lists, entries):
        self.dut, self.rng, self.lists, self.entries, self.edge = dut, rng, lists, entries, RisingEdge(dut.clk)
        self.latency, self.watermark, self.frozen, self.orders = (1, 5), 1, set(), deque()
        self.on, self.busy = True, False
        self.asked = Counter()                      # demands of each QP
        self.work, self.fetches = deque(), []       # (due, list)
        self.demands = StreamSink(dut, "o_demand", dut.clk, pause=0.2, rng=rng)
        self.wanting = 0                            # unsuccessful attempts to get an entry

    @property
    def idle(self):
        return not (self.work or self.fetches or self.orders or self.busy)

    async def run(self):
        while True:
            await self.edge
            while (qpn := self.demands.recv_nowait()) is not None:
                assert int(qpn) in self.lists.lists, f"a node is asked for {int(qpn):#x}, which is not a QP"
                self.asked[int(qpn)] += 1
                self.look_at(int(qpn))
            self.busy = True
            filled = [fetch for fetch in self.fetches if fetch[0] <= self.lists.now]
            if self.orders:
                await self._destroy(self.orders.popleft())
            elif filled:
                await self._fill(filled[0])
            elif self.work and self.on:
                await self._look(self.work.popleft())
            self.busy = False

    def look_at(self, qpn):
        if qpn not in self.work:
            self.work.append(qpn)

    async def _strobe(self, *ports):
        """Raise these ports for a cycle; the outputs of that cycle can be read afterwards."""
        for port in ports:
            getattr(self.dut, port).value = 1
        await self.edge
        for port in ports:
            getattr(self.dut, port).value = 0

    async def _waiting(self, qpn):
        self.dut.waiting_qpn.value = qpn
        await self.edge
        return bool(int(self.dut.waiting.value))

    async def _look(self, qpn):
        one = self.lists.lists[qpn]
        waiting = await self._waiting(qpn)
        if not one.live or not one.ahead or one.fetching or len(one.cached) >= self.lists.depth:
            return
        if one.kept:
            await self._enter(one)
        elif waiting or len(one.cached) < self.watermark:
            one.fetching = True
            self.fetches.append((self.lists.now + self.rng.randint(*self.latency), one))

    async def _fill(self, fetch):
        self.fetches.remove(fetch)
        await self._enter(fetch[1])
        fetch[1].fetching = False

    async def _enter(self, one):
        """Fill a node into an entry, or keep it until its list may have one."""
        dut, waiting = self.dut, await self._waiting(one.qpn)
        few, free = waiting or not one.cached, int(dut.fill__free_count.value)
        one.kept = False
        if not int(dut.fill__free.value) or not (few or free > self.entries // 8):
            one.kept = one.live
            self.lists.seen["no place"] += 1
            self.wanting += waiting
            if one.live and few and (await self._evict_one(one.qpn, waiting) or waiting):
                self.look_at(one.qpn)
            return
        if one.live:
            dut.fill__fill_node.value = int.from_bytes(one.ahead[0][0].pack(), "little")
        await self._strobe("fill__reserve_en")
        entry = int(dut.fill__free_index.value)
        if not one.live:
            dut.fill__release_index.value = entry
            await self._strobe("fill__release_en")
            self.lists.seen["fetch of a dead list"] += 1
        else:
            self.wanting = 0
            node, block = one.ahead[0]
            dut.fill__qpn.value = one.qpn
            for _ in range(LISTED):
                await self.edge
            dut.fill__fill_index.value, dut.fill__fill_block.value = entry, block
            await self._strobe("fill__fill_en")
            while not int(dut.fill__fill_ready.value):
                await self._strobe("fill__fill_en")
            one.cached.append((entry, node, block))
            await self.edge         # a header may have been looked up during the fill
            one.ahead.popleft()
            await self.wake(one.qpn)
            self.look_at(one.qpn)

    async def wake(self, qpn):
        await self.edge
        self.dut.wake_qpn.value = qpn
        await self._strobe("wake_stb")

    async def _evict_one(self, requester, waiting):
        """Evict the last node of another list, or order its head out.

        Unless ``waiting``, the other list keeps its head.
        """
        rng, lists = self.rng, self.lists
        victims = [one for qpn, one in lists.lists.items() if qpn != requester and len(one.cached) > (not waiting)
                   and one.live and not one.fetching and not lists.beyond_end(one)]
        if not victims:
            return False
        one = rng.choice(victims)
        if not await self._waiting(one.qpn) and rng.random() < 0.8:
            return await self._evict(one)
        if waiting and self.wanting > 8:
            await self._force(one)
        return False

    async def _evict(self, one):
        """Evict the last node of a list, with the matcher stopped, if none of its holes was filled."""
        dut, gone = self.dut, False
        dut.exclusive.value = 1
        await self.edge
        while not int(dut.granted.value):
            await self.edge
        if one.cached:
            dut.fill__peek_index.value = one.cached[-1][0]
            await self.edge
            assert int(dut.granted.value) and int(dut.fill__peek_valid.value) and int(dut.fill__peek_last.value)
            assert unpack(cached_record(self.lists.params), int(dut.fill__peek.value)).qpn == one.qpn
            if not int(dut.fill__peek_touched.value):
                dut.fill__release_index.value, *fetched = one.cached.pop()
                await self._strobe("fill__release_en")
                one.ahead.appendleft(fetched)
                one.kept, gone = False, True
                self.lists.seen["evicted"] += 1
        dut.exclusive.value = 0
        if gone:
            self.look_at(one.qpn)
        return gone

    async def _force(self, one):
        """Order the head of a list out while its headers cannot be matched."""
        dut, lists = self.dut, self.lists
        self.frozen.add(one.qpn)
        for _ in range(QUIET):
            await self.edge
        if await self._stuck(one):
            dut.i_force__payload.value = pack(QpRef, qpn=one.qpn, generation=one.generation)
            await self._strobe("i_force__valid")
            while not int(dut.i_force__ready.value):
                await self._strobe("i_force__valid")
            one.model.force()
            one.caused(0)
            lists.seen["ordered out", bool(lists.outstanding[one.qpn])] += 1
            self.wanting, left = 0, one.left
            while one.left == left:     # the report queue may be full
                await self.edge
        self.frozen.discard(one.qpn)

    async def _stuck(self, one):
        """Return True if a list makes no progress by itself: it has no header, or all wait for a node to be fetched."""
        headers = self.lists.outstanding[one.qpn]
        if not self.lists.early_probes(one.qpn):
            return False
        if headers:
            if (len(one.cached) >= self.lists.depth or not await self._waiting(one.qpn)
                    or self._judged_lately(one)):
                return False
            heads = takewhile(lambda node: not node.left or one.model.passed(node, headers[0].rsn, self.lists.slack),
                              one.model.nodes)
            if one.left != one.gone + sum(1 for _ in heads):    # not looked up yet
                return False
            one.model.pass_over(headers[0].rsn, self.lists.slack)
            one.caused(headers[0].ticket)
            if any(node.slot(headers[0].rsn) is not None for node in one.order[one.left:one.left + len(one.cached)]):
                return False
        return bool(one.cached) and one.gone == one.left and not self._judged_lately(one)

    def _judged_lately(self, one):
        return self.lists.now - self.lists.judged_at[one.qpn] <= QUIET

    async def _destroy(self, qpn):
        """Destroy a QP and create its next incarnation: its headers are dropped, its nodes leave the cache."""
        lists, one = self.lists, self.lists.lists[qpn]
        lists.seen["destroyed with nodes cached"] += bool(one.cached)
        lists.seen["destroyed while waiting"] += await self._waiting(qpn)
        one.live = one.kept = False
        await self.wake(qpn)
        while fetch := next((fetch for fetch in self.fetches if fetch[1] is one), None):
            await self._fill(fetch)
        await self._control(ControlKind.DESTROY, qpn, one.generation)
        one.cached.clear()
        while one.model.nodes:      # up to the nodes that the card retired
            one.model.force()
        one.caused(0)
        lists.seen["destroyed with an order"] += (one.qpn, one.generation) in lists.ordered
        lists.compare(one)
        self.frozen.discard(qpn)
        generation = (one.generation + 1) % 256
        lists.create(qpn, generation, self.rng.choice([0, (1 << 24) - 9, (1 << 32) - 9, self.rng.getrandbits(32)]))
        await self._control(ControlKind.CREATE, qpn, generation)

    async def _control(self, kind, qpn, generation):
        self.dut.i_control__payload.value = pack(ControlOp, kind=kind, qpn=qpn, generation=generation)
        await self._strobe("i_control__valid")
        while not int(self.dut.i_control__ready.value):
            await self._strobe("i_control__valid")
