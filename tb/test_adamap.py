"""The whole Adamap room in a closed loop: losses, a knitting driver, retransmissions, until every hole is filled."""

import heapq
import os
import random
from collections import Counter, deque
from dataclasses import replace

import cocotb
import pytest
from cocotb.triggers import Lock, RisingEdge, Timer

from weft.driver.node import Node, choose_encoding, open_holes
from weft.hdl import abi
from weft.hdl.adamap.adamap import Adamap, Extent
from weft.hdl.adamap.control import QpRef
from weft.hdl.layouts import Judgement, JudgeRequest, LineData, LineRequest, ListCreate
from weft.hdl.params import preset
from weft.model.functional.node_list import NodeList
from weft.tb.clock import start_clock
from weft.tb.sim import SIMULATORS, bench_seed, simulate
from weft.tb.stream import StreamSink, StreamSource
from weft.tb.test_adamap_window import pack, unpack
from weft.tb.with_qp_table import WithQpTable, write_qp

ACCEPT, DUPLICATE, STALE, LATE, MATCH, QUEUE_FULL, PROBE = range(7)
EXTENTS = [(0x1000, 64), (0x9_0000, 64)]
MASK = (1 << 32) - 1


class Qp:
    """Both drivers' view of one connection."""

    def __init__(self, qpn, generation, psn, line, world):
        self.qpn, self.generation, self.first = qpn, generation, psn
        self.next_psn = psn            # sender: next original
        self.rsn = 0                   # receiver: RSN of the next hole linked
        self.linked = 0
        self.spare = line              # block that the next node goes to
        self.nodes = deque()           # (line, Node) in the list
        self.todo = deque()            # retransmissions the sender knows of: (psn, rsn)
        self.sent_rsn = 0
        self.lost = set()              # PSNs reported as holes
        self.filled = set()
        self.in_flight = 0             # judge requests without judgement
        self.frozen = False
        self.matcher = NodeList(qpn, generation, line, lambda at: world.blocks[at], world.inside)


class World:
    """Host memory, driver and network around the room."""

    def __init__(self, dut, rng, *, exact, slack, latency):
        self.dut, self.rng, self.exact, self.slack, self.latency = dut, rng, exact, slack, latency
        self.blocks, self.seen, self.qps = {}, Counter(), {}
        self.read = set()              # lines the card has got
        self.lines = [first + k for first, count in EXTENTS for k in range(count)]
        pieces = [self.lines[k:k + 4] for k in range(0, len(self.lines), 4)]    # some nodes lie in consecutive blocks
        rng.shuffle(pieces)
        self.free = deque(line for piece in pieces for line in piece)
        self.expected = {}             # qpn -> deque of model retirements
        self.requests = deque()
        self.ticket = 0
        self.placed = 0
        self.now = 0
        self.judged = deque()
        self.retired = 0
        self.doorbell = Lock()
        edge = dut.clk
        self.judge = StreamSource(dut, "i_judge", edge, pause=0.1, rng=random.Random(rng.random()))
        self.judgements = StreamSink(dut, "o_judgement", edge, pause=0.1, rng=random.Random(rng.random()))
        self.reports = [
            StreamSink(dut, f"o_report__{k}", edge, pause=0.3, rng=random.Random(rng.random())) for k in range(2)
        ]
        self.line_requests = StreamSink(dut, "o_line", edge, pause=0.3, rng=random.Random(rng.random()))
        self.errors = StreamSink(dut, "o_qp_error", edge)
        self.create_source = StreamSource(dut, "i_create", edge)
        self.destroy_source = StreamSource(dut, "i_destroy", edge)
        for task in (self.count(), self.serve_lines(), self.collect(), self.nodes(), self.retirements()):
            cocotb.start_soon(task)

    def inside(self, line):
        return any(first <= line < first + count for first, count in EXTENTS)

    async def extents(self):
        source = StreamSource(self.dut, "i_extent", self.dut.clk)
        for k, (first, count) in enumerate(EXTENTS):
            await source.send(pack(Extent, index=k, base=first, lines=count))

    async def create(self, qpn, generation):
        psn = self.rng.choice([0, 5, (1 << 24) - 20, (1 << 32) - 50, self.rng.getrandbits(32)])
        line = self.free.popleft()
        await write_qp(self.dut, qpn, generation)
        await self.create_source.send(pack(ListCreate, qpn=qpn, generation=generation, psn=psn, line=line))
        self.qps[qpn] = Qp(qpn, generation, psn, line, self)
        self.expected[qpn] = deque()
        return self.qps[qpn]

    async def count(self):
        """Strobes, time, and placement of payloads a while after their judgement."""
        dut, pending = self.dut, deque()
        names = list(Adamap.COUNTS)
        while True:
            await RisingEdge(dut.clk)
            self.now += 1
            dut.time_ns.value = 4 * self.now
            for name in names:
                value = getattr(dut, f"count_{name}").value
                self.seen[name] += int(value)
            if int(dut.refuse_stb.value):
                self.seen[abi.Reason(int(dut.refuse_reason.value)).name] += 1
            if int(dut.broken_stb.value):
                self.seen[f"broken {abi.Reason(int(dut.broken_reason.value)).name}"] += 1
            while self.judged:
                pending.append((self.now + self.rng.randint(0, 30), self.judged.popleft()))
            while pending and pending[0][0] <= self.now:
                self.placed = pending.popleft()[1]
            dut.placed_ticket.value = self.placed % 256

    async def serve_lines(self):
        """Reads of host memory, answered out of order."""
        dut, waiting, order, answer = self.dut, [], 0, deque()
        while True:
            await RisingEdge(dut.clk)
            while (value := self.line_requests.recv_nowait()) is not None:
                request = unpack(LineRequest, int(value))
                assert 1 <= request["count"] <= 4 and request["line"] % 64 + request["count"] <= 64
                for line in range(request["line"], request["line"] + request["count"]):
                    assert self.inside(line), f"read outside the extents: {line:#x}"
                self.seen["lines in one read"] = max(self.seen["lines in one read"], request["count"])
                order += 1
                heapq.heappush(waiting, (self.now + self.rng.randint(*self.latency), order, request))
            dut.i_line__valid.value = 0
            if not answer and waiting and waiting[0][0] <= self.now:
                request = heapq.heappop(waiting)[2]
                answer += [(request, k) for k in range(request["count"])]
            if answer:
                request, k = answer.popleft()
                # Whatever lies behind the list is read too.
                block = self.blocks.get(request["line"] + k, self.rng.randbytes(64))
                if isinstance(block, Exception):
                    data, error = 0, 1
                else:
                    data, error = int.from_bytes(block, "little"), 0
                dut.i_line__payload.value = pack(
                    LineData, data=data, tag=request["tag"] | 0x5000, index=k, last=int(k + 1 == request["count"]),
                    error=error)
                dut.i_line__valid.value = 1
                self.read.add(request["line"] + k)

    def request(self, qp, **fields):
        """Hand a packet to the window."""
        self.ticket += 1
        qp.in_flight += 1
        self.requests.append((qp, self.ticket, fields))
        self.judge.send_nowait(
            pack(
                JudgeRequest,
                **{
                    **fields,
                    "psn": fields["psn"] % (1 << 24),
                    "rsn": fields.get("rsn", 0) % (1 << 24),
                    "qpn": qp.qpn,
                    "generation": qp.generation,
                    "ticket": self.ticket % 256,
                },
            )
        )

    async def collect(self):
        """Judgements: what the model's matcher is told, in the same order."""
        while True:
            judged = unpack(Judgement, int(await self.judgements.recv()))
            qp, ticket, fields = self.requests.popleft()
            qp.in_flight -= 1
            self.judged.append(ticket)
            self.seen[f"verdict{judged['verdict']}"] += 1
            if self.exact and judged["verdict"] in (MATCH, PROBE):
                before = len(qp.matcher.retired)
                if judged["verdict"] == PROBE:
                    qp.matcher.probe(fields["rsn"])
                else:
                    reason = qp.matcher.match(fields["psn"], fields["rsn"], self.slack)
                    self.seen[f"model {reason.name}"] += 1
                    if reason == abi.Reason.OK:
                        qp.filled.add(fields["psn"] & MASK)
                self.expected[qp.qpn] += [(n, ticket) for n in list(qp.matcher.retired)[before:]]

    def link(self, qp, base, holes):
        """Knit a node into the list and ring; return what the sender will send."""
        node = Node(qp.qpn, qp.generation, base, qp.rsn & MASK, choose_encoding(holes), tuple(holes))
        line, qp.spare = qp.spare, self.free.popleft()
        self.blocks[line] = node.pack(next_line=qp.spare, next_adjacent=int(qp.spare == line + 1))
        qp.nodes.append((line, node))
        qp.todo += [((base + h) & MASK, qp.rsn + i) for i, h in enumerate(holes)]
        qp.rsn += len(holes)
        qp.linked += 1
        qp.matcher.linked += 1
        self.seen[node.encoding.name] += 1
        return abi.LINK_DOORBELL.pack(qpn=qp.qpn, generation=qp.generation, nodes=1)

    async def ring(self, doorbell):
        async with self.doorbell:
            await RisingEdge(self.dut.clk)      # whoever calls may come from between two edges
            self.dut.link_doorbell.value = int.from_bytes(doorbell, "little")
            self.dut.link_doorbell_stb.value = 1
            await RisingEdge(self.dut.clk)
            self.dut.link_doorbell_stb.value = 0

    async def complete_until(self, qp, psn):
        """What is older than ``psn`` need not be taken any more; the rest may be sent again."""
        await RisingEdge(self.dut.clk)      # whoever calls may come from between two edges
        self.dut.cum_doorbell.value = int.from_bytes(
            abi.CUM_DOORBELL.pack(qpn=qp.qpn, generation=qp.generation, psn=psn), "little")
        self.dut.cum_doorbell_stb.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.cum_doorbell_stb.value = 0

    async def nodes(self):
        while True:
            report = int(await self.reports[0].recv())
            node = Node.unpack((report % (1 << 512)).to_bytes(64, "little"))
            qp = self.qps.get(node.qpn)
            if qp is None or qp.generation != node.generation:
                self.seen["dead node"] += 1
                continue
            psns = set(node.psns)
            assert not psns & qp.lost, "a PSN was lost twice"
            qp.lost |= psns
            while len(self.free) < 8:
                await Timer(100, "ns")
            await self.ring(self.link(qp, node.base_psn, list(node.holes)))

    async def retirements(self):
        while True:
            report = (int(await self.reports[1].recv()) % (1 << 512)).to_bytes(64, "little")
            kind = abi.REPORT_RETIRE.unpack(report).kind
            if kind == abi.ReportKind.QP_ERROR:
                event = abi.REPORT_EVENT.unpack(report)
                self.seen[f"QP_ERROR {event.reason.name}"] += 1
                continue
            retire = abi.REPORT_RETIRE.unpack(report)
            qp = self.qps.get(retire.qpn)
            if qp is None or qp.generation != retire.generation:
                self.seen["dead retirement"] += 1
                continue
            line, node = qp.nodes.popleft()
            assert (retire.line, retire.rsn) == (line, node.rsn), "not the head was retired"
            assert retire.next_rsn == node.rsn + len(node.holes)
            assert retire.residue == bin(retire.open).count("1")
            left = open_holes(node.encoding, node.holes, retire.open)
            assert len(left) == retire.residue
            if self.exact:
                while not self.expected[qp.qpn]:
                    await RisingEdge(self.dut.clk)
                want, ticket = self.expected[qp.qpn].popleft()
                assert (want.line, want.open) == (line, retire.open), (
                    f"residue {retire.open:#x}, expected {want.open:#x}"
                )
                assert self.placed >= ticket, "retired before the packet was placed"
            else:
                qp.filled |= {p for p, h in zip(node.psns, node.holes, strict=True) if h not in left}
            del self.blocks[line]
            self.free.append(line)
            self.retired += 1
            if left:
                for piece in self.pieces(left):
                    base = (node.base_psn + piece[0]) & MASK
                    await self.ring(self.link(qp, base, [h - piece[0] for h in piece]))

    @staticmethod
    def pieces(holes):
        """Cut holes into nodes: what is left of a node of runs need not fit a single one."""
        piece = []
        for hole in holes:
            if piece and choose_encoding([h - piece[0] for h in [*piece, hole]]) is None:
                yield piece
                piece = []
            piece.append(hole)
        yield piece

    def originals(self, qp, packets):
        """A stretch of new packets with losses of one kind; some come late."""
        rng = self.rng
        kind = rng.choice(["none", "sparse", "burst", "dense", "solid"])
        k, late = 0, []
        while k < packets:
            psn = qp.next_psn + k
            lost = {"none": 0, "sparse": 0.06, "burst": 0.05, "dense": 0.5, "solid": 0.0}[kind] > rng.random()
            if kind == "solid" and k == packets // 2:
                k += rng.choice([400, 700])
            elif lost:
                k += rng.randint(5, 40) if kind == "burst" else 1
                if rng.random() < 0.1:
                    late.append(psn)
            else:
                self.request(qp, psn=psn, ack_req=int(rng.random() < 0.02))
                k += 1
        for psn in late:
            self.request(qp, psn=psn)
        qp.next_psn += k

    def retransmit(self, qp, loss):
        """Send some of what is asked for, in order (nearly, when the slack allows it)."""
        rng = self.rng
        batch = [qp.todo.popleft() for _ in range(min(len(qp.todo), rng.randint(1, 30)))]
        if self.slack > 2 and rng.random() < 0.5:
            for k in range(0, len(batch) - 1, 2):
                batch[k], batch[k + 1] = batch[k + 1], batch[k]
        for psn, rsn in batch:
            qp.sent_rsn = max(qp.sent_rsn, rsn + 1)
            if rng.random() < loss:
                continue
            self.request(qp, psn=psn, rsn=rsn, retransmission=1)
            if rng.random() < 0.04:
                self.request(qp, psn=psn, rsn=rsn, retransmission=1)           # duplicate
            if rng.random() < 0.02:
                self.request(qp, psn=psn + 1, rsn=rsn, retransmission=1)       # another hole, or none

    def probe(self, qp):
        self.request(qp, psn=qp.next_psn, rsn=qp.sent_rsn, probe=1)

    async def settle(self, qps, loss=0.0):
        """Recover until nothing is missing; a node is retired now and then until then."""
        retired, progress = self.retired, self.now
        while True:
            for qp in qps:
                if len(self.requests) < 40:
                    if qp.todo:
                        self.retransmit(qp, loss)
                    elif self.rng.random() < 0.3:
                        self.probe(qp)
            await Timer(400, "ns")
            if all(not q.todo and not q.nodes and not q.in_flight for q in qps) and int(self.dut.idle.value):
                if not any(len(r) for r in self.reports):
                    return
            if self.retired != retired:
                retired, progress = self.retired, self.now
            left = [(q.qpn, len(q.todo), len(q.nodes), q.in_flight) for q in qps]
            assert self.now < progress + 20000, f"not recovered: {left}"


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def every_hole_is_filled(dut):
    rng = random.Random(bench_seed())
    exact = bool(int(os.environ.get("EXACT", "1")))
    slack = 1 if exact else rng.choice([3, 8, 100])
    await start_clock(dut)
    dut.reorder_distance.value = 1
    dut.node_age_ns.value = 3000
    dut.retransmit_slack.value = slack
    dut.prefetch_depth.value = rng.choice([1, 2, 4])
    dut.prefetch_watermark.value = rng.choice([1, 2, 4])
    world = World(dut, rng, exact=exact, slack=slack, latency=rng.choice([(5, 20), (60, 300)]))
    await world.extents()
    for qpn in range(4):
        await world.create(qpn, rng.randrange(256))
    qps = list(world.qps.values())
    turns, wanted = int(os.environ.get("TURNS", "10")), (
        "nodes_residue", "cache_misses", "DUPLICATE", "NOT_IN_NODE", "LIST", f"verdict{LATE}")
    for turn in range(10 * turns):
        if turn >= turns and all(world.seen[name] for name in wanted):
            break
        for _ in range(6):
            qp = rng.choice(qps)
            world.originals(qp, rng.randint(10, 60))
            other = rng.choice(qps)
            if other.todo:
                world.retransmit(other, 0.2)
            if rng.random() < 0.3:
                world.probe(rng.choice(qps))
            while len(world.requests) > 20:
                await RisingEdge(dut.clk)
        if turn % 4 == 2:       # one QP goes in the middle of it all and comes back
            gone = rng.choice(qps)
            gone.todo and world.retransmit(gone, 0.0)
            while gone.in_flight:
                await RisingEdge(dut.clk)
            del world.qps[gone.qpn]
            await write_qp(dut, gone.qpn, 0, abi.QpState.RESET)
            world.destroy_source.send_nowait(pack(QpRef, qpn=gone.qpn, generation=gone.generation))
            cycles = 0
            while not int(dut.destroyed.value):
                await RisingEdge(dut.clk)
                cycles += 1
                assert cycles < 3000
            for line, _ in gone.nodes:
                world.free.append(line)
            world.free.append(gone.spare)
            new = await world.create(gone.qpn, (gone.generation + 1) % 256)
            qps = [new if q is gone else q for q in qps]
        if turn % 3 == 1:
            await world.settle(qps, loss=0.1)
    for qp in qps:
        world.probe(qp)
    await world.settle(qps, loss=0.0)
    for qp in qps:
        assert qp.lost == qp.filled, f"QP {qp.qpn}: {sorted(qp.lost ^ qp.filled)[:20]}"
        dut.query_qpn.value = qp.qpn
        dut.query_stb.value = 1
        await RisingEdge(dut.clk)
        dut.query_stb.value = 0
        while not int(dut.query_done.value):
            await RisingEdge(dut.clk)
        base, holes, ahead, cached = (int(getattr(dut, f"query_result__{k}").value) for k in range(4))
        assert (base, holes) == (qp.next_psn & MASK, len(qp.lost)), (base, qp.next_psn, holes, len(qp.lost))
        assert ahead == cached == 0
    assert sorted([*world.free, *(q.spare for q in qps)]) == sorted(world.lines), "blocks were lost or doubled"
    dut._log.info("%s", dict(world.seen))
    assert all(world.seen[name] for name in wanted) and len(world.errors) == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def broken_list_stops_its_qp(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    dut.reorder_distance.value = 1
    dut.node_age_ns.value = 400
    dut.retransmit_slack.value = 1
    dut.prefetch_depth.value = 2
    dut.prefetch_watermark.value = 2
    world = World(dut, rng, exact=False, slack=1, latency=(5, 20))
    await world.extents()
    damage = {
        "BAD_POINTER": lambda qp, line: None,
        "qpn": lambda qp, line: world.blocks[line][:8] + b"\x77" + world.blocks[line][9:],
        "generation": lambda qp, line: (
            world.blocks[line][:11] + bytes([world.blocks[line][11] ^ 1]) + world.blocks[line][12:]
        ),
        "count": lambda qp, line: world.blocks[line][:12] + b"\x00\x00\x00" + world.blocks[line][15:],
        "many": lambda qp, line: world.blocks[line][:12] + b"\x41\x01\x00" + world.blocks[line][15:],
        "encoding": lambda qp, line: world.blocks[line][:15] + b"\x07" + world.blocks[line][16:],
        "runs": lambda qp, line: world.blocks[line][:12] + b"\x41\x00\x00\x02" + world.blocks[line][16:],
        "rsn": lambda qp, line: world.blocks[line][:20] + b"\x05" + world.blocks[line][21:],
        "DMA_ERROR": lambda qp, line: RuntimeError("no such memory"),
    }
    for turn, (name, change) in enumerate(damage.items()):
        qp = await world.create(turn % 4, turn + 1)
        first = qp.spare
        if name == "BAD_POINTER":
            qp.generation = turn + 1
            await world.ring(world.link(qp, 100, [0, 1]))          # a good node pointing outside
            world.blocks[first] = Node(qp.qpn, qp.generation, 100, 0, abi.Encoding.LIST, (0, 1)).pack(next_line=0x1040)
            doorbell = abi.LINK_DOORBELL.pack(qpn=qp.qpn, generation=qp.generation, nodes=1)
        else:
            if name == "rsn":       # only what follows a cached node can be seen to go on wrongly
                await world.ring(world.link(qp, 90, [0, 1]))
                first = qp.spare
            doorbell = world.link(qp, 100, [0, 1])
            world.blocks[first] = change(qp, first)
        await world.ring(doorbell)
        assert int(await world.errors.recv()) == qp.qpn
        while not sum(v for k, v in world.seen.items() if k.startswith("QP_ERROR")) == turn + 1:
            await RisingEdge(dut.clk)
        del world.qps[qp.qpn]
        await write_qp(dut, qp.qpn, 0, abi.QpState.RESET)
        world.destroy_source.send_nowait(pack(QpRef, qpn=qp.qpn, generation=qp.generation))
        while not int(dut.destroyed.value):
            await RisingEdge(dut.clk)
    assert (
        world.seen["QP_ERROR BAD_POINTER"] == 1
        and world.seen["QP_ERROR BAD_NODE"] == 7
        and world.seen["QP_ERROR DMA_ERROR"] == 1
    )
    assert all(world.seen[f"broken {name}"] == world.seen[f"QP_ERROR {name}"] for name in (
        "BAD_POINTER", "BAD_NODE", "DMA_ERROR"))


@cocotb.test(timeout_time=200, timeout_unit="us")
async def cached_node_is_matched_at_full_rate(dut):
    await start_clock(dut)
    dut.reorder_distance.value = 1
    dut.node_age_ns.value = 400
    dut.retransmit_slack.value = 1
    dut.prefetch_depth.value = 4
    dut.prefetch_watermark.value = 4
    world = World(dut, random.Random(3), exact=True, slack=1, latency=(5, 20))
    world.judge.pause = world.judgements.pause = 0.0
    await world.extents()
    qp = await world.create(0, 1)
    world.request(qp, psn=qp.next_psn + 120, ack_req=1)
    qp.next_psn += 121
    while not world.seen["prefetches"] or not int(dut.idle.value):
        await RisingEdge(dut.clk)
    for psn, rsn in qp.todo:
        world.request(qp, psn=psn, rsn=rsn, retransmission=1)
    qp.todo.clear()
    while not world.seen["cache_hits"]:
        await RisingEdge(dut.clk)
    start = world.now
    while world.seen["cache_hits"] < 120:
        await RisingEdge(dut.clk)
    dut._log.info("119 matches in %d cycles", world.now - start)
    assert world.now - start <= 2 * 119 + 4
    while qp.nodes:
        await RisingEdge(dut.clk)
    assert (
        world.seen["cache_misses"] == 0 and world.seen["match_stall_cycles"] == 0 and world.seen["nodes_residue"] == 0
    )


@cocotb.test(timeout_time=200, timeout_unit="us")
async def list_without_its_node_leaves_room_for_others(dut):
    """A QP whose node does not come may fill most of the match queue; another one's retransmissions pass."""
    await start_clock(dut)
    dut.reorder_distance.value = 1
    dut.node_age_ns.value = 1 << 30
    dut.retransmit_slack.value = 1
    dut.prefetch_depth.value = dut.prefetch_watermark.value = 2
    latency = (5, 20)
    world = World(dut, random.Random(bench_seed()), exact=False, slack=1, latency=latency)
    await world.extents()
    stuck, other = [await world.create(qpn, 1) for qpn in range(2)]
    for qp in (other, stuck):
        await world.complete_until(qp, (qp.next_psn - 400) & MASK)
        if qp is stuck:
            world.latency = (20000, 20000)      # from now on no node comes
        await world.ring(world.link(qp, (qp.next_psn - 400) & MASK, list(range(0, 36, 2))))
        while world.seen["prefetches"] < 1 + (qp is stuck):
            await RisingEdge(dut.clk)
        await Timer(400, "ns")

    async def send(qp, times):
        for psn, rsn in list(qp.todo) * times:
            world.request(qp, psn=psn, rsn=rsn, retransmission=1)
        while qp.in_flight:
            await RisingEdge(dut.clk)

    await send(stuck, 2)
    full = world.seen[f"verdict{QUEUE_FULL}"]
    assert full > 10 and world.seen[f"verdict{MATCH}"] > 8
    await send(other, 1)
    assert world.seen[f"verdict{QUEUE_FULL}"] == full
    while world.seen["cache_hits"] < len(other.todo):
        await RisingEdge(dut.clk)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def consecutive_blocks_are_read_at_once(dut):
    """Nodes that lie one behind the other come in reads of several; what lies behind a piece is read and forgotten."""
    await start_clock(dut)
    dut.reorder_distance.value = 1
    dut.node_age_ns.value = 1 << 30
    dut.retransmit_slack.value = 1
    dut.prefetch_depth.value, dut.prefetch_watermark.value = 4, 1
    world = World(dut, random.Random(bench_seed()), exact=True, slack=1, latency=(60, 80))
    world.free = deque([*range(0x1001, 0x100A), *range(0x9_0001, 0x9_0008), *range(0x1020, 0x1030)])
    await world.extents()
    qp = await world.create(0, 1)
    count = 20
    first = (qp.next_psn - 20 * count) & MASK                # behind the window, as if lost before
    await world.complete_until(qp, first)
    for k in range(count):
        world.link(qp, (first + 20 * k) & MASK, list(range(0, 20, 2)))
    await world.ring(abi.LINK_DOORBELL.pack(qpn=0, generation=1, nodes=count))
    while qp.todo:
        world.retransmit(qp, 0.0)
        await Timer(2, "us")
    await world.settle([qp])
    dut._log.info("%d nodes in %d reads, %s", count, world.seen["prefetches"], dict(world.seen))
    assert world.seen["lines in one read"] == 4 and 4 * world.seen["prefetches"] <= 3 * qp.linked


@cocotb.test(timeout_time=200, timeout_unit="us")
async def bitmap_knows_holes_by_their_psns(dut):
    """Whatever RSN they come with. What is not open is a duplicate, what lies outside is not in the node."""
    rng = random.Random(bench_seed())
    await start_clock(dut)
    dut.reorder_distance.value = 1
    dut.node_age_ns.value = 1 << 30
    dut.retransmit_slack.value = 1
    dut.prefetch_depth.value, dut.prefetch_watermark.value = 4, 4
    world = World(dut, rng, exact=True, slack=1, latency=(5, 20))
    await world.extents()
    qp = await world.create(0, 1)
    first = (qp.next_psn - 2000) & MASK                      # behind the window, as if lost before
    await world.complete_until(qp, first)
    holes = sorted(rng.sample(range(1, abi.NODE_BODY_BITS), 150))
    await world.ring(world.link(qp, first, [0, *holes]))
    sent = [psn for psn, _ in qp.todo]
    closed = [(first + k) & MASK for k in range(abi.NODE_BODY_BITS) if k and k not in holes]
    outside = [(first + k) & MASK for k in (abi.NODE_BODY_BITS, 512, 1999)]
    rsns = [rsn for _, rsn in qp.todo]
    qp.todo.clear()
    packets = [*sent[:-1], *rng.sample(closed, 20), *outside, sent[0], sent[1]]
    rng.shuffle(packets)
    while not world.seen["prefetches"] or not int(dut.idle.value):
        await RisingEdge(dut.clk)
    for psn in [*packets, sent[-1]]:
        world.request(qp, psn=psn, rsn=rng.choice(rsns), retransmission=1)
    while qp.nodes:
        await RisingEdge(dut.clk)
    assert qp.filled == set(sent) and world.seen["nodes_residue"] == 0 and world.seen["BITMAP"] == 1
    assert (world.seen["DUPLICATE"], world.seen["NOT_IN_NODE"]) == (22, 3)


@cocotb.test(timeout_time=400, timeout_unit="us")
async def bitmaps_land_while_others_are_matched(dut):
    """Nodes are filled and bitmaps are marked in the same memory."""
    rng = random.Random(bench_seed())
    await start_clock(dut)
    dut.reorder_distance.value = 1
    dut.node_age_ns.value = 1 << 30
    dut.retransmit_slack.value = 1
    dut.prefetch_depth.value, dut.prefetch_watermark.value = 4, 4
    world = World(dut, rng, exact=True, slack=1, latency=(5, 60))
    world.judge.pause = world.judgements.pause = 0.0
    await world.extents()
    qp = await world.create(0, 1)
    count = 10
    first = (qp.next_psn - 400 * count) & MASK               # behind the window, as if lost before
    await world.complete_until(qp, first)
    for k in range(count):
        holes = sorted(rng.sample(range(1, abi.NODE_BODY_BITS), rng.randint(70, 200)))
        world.link(qp, (first + 400 * k) & MASK, [0, *holes])
    await world.ring(abi.LINK_DOORBELL.pack(qpn=0, generation=1, nodes=count))
    for line, node in list(qp.nodes):
        while line not in world.read:
            await RisingEdge(dut.clk)
        await Timer(80, "ns")                                # it lands
        for psn in node.psns:
            while len(world.requests) > 10:
                await RisingEdge(dut.clk)
            world.request(qp, psn=psn, rsn=node.rsn, retransmission=1)
    while qp.nodes:
        await RisingEdge(dut.clk)
    assert qp.filled == {psn for psn, _ in qp.todo} and world.seen["nodes_residue"] == 0
    assert world.seen["BITMAP"] == count and world.seen["cache_hits"] > 70 * count


@pytest.mark.parametrize("sim", SIMULATORS)
def test_recovery_agrees_with_the_model(sim):
    params = replace(
        preset("test"),
        qps=4,
        window_bits=64,
        builder_slots=4,
        cache_entries=8,
        prefetch_depth_max=4,
        match_queue=16,
        knit_extents=2,
    )
    simulate(
        WithQpTable(Adamap(params)),
        name="adamap",
        bench="weft.tb.test_adamap",
        sim=sim,
        env={"TURNS": "6" if sim == "icarus" else "40"},
    )


def test_recovery_with_slack_and_a_tiny_cache():
    params = replace(
        preset("test"),
        qps=4,
        window_bits=64,
        builder_slots=2,
        cache_entries=4,
        prefetch_depth_max=2,
        match_queue=16,
        knit_extents=2,
    )
    simulate(
        WithQpTable(Adamap(params)),
        name="adamap_tiny",
        bench="weft.tb.test_adamap",
        sim="verilator",
        tests="every_hole_is_filled",
        env={"EXACT": "0", "TURNS": "15"},
    )
