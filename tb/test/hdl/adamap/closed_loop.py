"""Driver and host memory around the Adamap subsystem, for benches that follow every hole from its loss to its end."""

import functools
import random
from collections import Counter, deque
from dataclasses import replace

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import RisingEdge

from weft.hdl.adamap.adamap import Adamap
from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import Verdict
from weft.model.functional.node import Node, choose_encoding, open_holes
from weft.tb.sim.block.adamap.subsystem_port import SubsystemPort
from weft.tb.sim.block.adamap.with_qp_table import WithQpTable
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.stream.clock import start_clock
from weft.tb.test.hdl.adamap.connection import MASK, Qp, pieces_of
from weft.tb.test.hdl.adamap.knitting_lines import PIECE, KnittingLines

PARAMS = replace(preset("test"), qps=8, window_bits=64, builder_slots=4, cache_entries=16, prefetch_depth_max=4,
                 match_queue=16, knit_extents=2)
POINTER_BYTES = abi.NODE.shift_of("qpn") // 8
RESERVE = 8             # free blocks that nodes from the window leave to residues
NEVER_NS = 1 << 30


@functools.cache
def subsystem():
    """Return the simulated design, one instance for a process: the tests of several files share its Verilog."""
    return WithQpTable(Adamap(PARAMS))


class ClosedLoop:
    """Knits the reported nodes into lists, and compares every retirement with the model.

    Parameters
    ----------
    exact : bool
        Retransmissions come in order (slack 1), so the model knows which packet retires which node.
    latency : tuple
        Least and most cycles of a read; may be changed at any time.

    Attributes
    ----------
    blocks : dict
        Contents of linked blocks; None for memory that cannot be read.
    read : set
        Blocks that the card has read.
    seen : Counter
        Strobes of the subsystem, drops, verdicts, reports and encodings by name.
    """

    def __init__(self, dut, rng, *, exact, slack, latency):
        self.dut, self.rng, self.exact, self.slack, self.latency = dut, rng, exact, slack, latency
        self.port = SubsystemPort(dut, rng, on_judgement=self._judged, on_report=self._reported, on_read=self._on_read,
                                  on_answer=self._on_answer, latency=lambda: rng.randint(*self.latency))
        self.blocks, self.read, self.seen, self.qps = {}, set(), Counter(), {}
        self._ends = set()      # blocks that were the last ones of a list when the card read them
        self.memory = KnittingLines(PARAMS, rng)
        lines = self.memory.lines
        pieces = [lines[k:k + PIECE] for k in range(0, len(lines), PIECE)]      # some nodes lie in consecutive blocks
        rng.shuffle(pieces)
        self.free = deque(line for piece in pieces for line in piece)
        self.retired = 0
        self._node_reports, self._retire_reports = Queue(), Queue()
        for task in (self._count(), self._link_nodes(), self._take_back_nodes()):
            cocotb.start_soon(task)

    @property
    def idle(self):
        return self._node_reports.empty() and self._retire_reports.empty() and self.port.idle

    async def create(self, qpn, generation):
        psn, rsn = (self.rng.choice([0, 5, (1 << 24) - 20, (1 << 32) - 50, self.rng.getrandbits(32)]) for _ in range(2))
        qp = Qp(qpn, generation, psn, rsn, self.blocks.__getitem__, self.memory.inside)
        await self.port.create(qpn, generation, psn)
        self.qps[qpn] = qp
        return qp

    async def destroy(self, qp):
        """Destroy a QP, and free its blocks when the subsystem has dropped it."""
        del self.qps[qp.qpn]
        await self.port.destroy(qp.qpn, qp.generation)
        self.free += [line for line, _ in qp.nodes]

    async def after_window(self, qp, packets):
        """Return the PSN ``packets`` before the next one, and make it the cumulative PSN.

        From it on, retransmissions are accepted as if the packets had been lost before.
        """
        psn = (qp.next_psn - packets) & MASK
        self.port.cum(qp.qpn, qp.generation, psn)
        await self.port.pass_cycles(4)
        return psn

    def request(self, qp, *, psn, rsn=0, **flags):
        """Send a packet to the window."""
        qp.in_flight += 1
        record = [qp, psn & MASK, rsn]
        record.append(self.port.judge(record, qpn=qp.qpn, generation=qp.generation, psn=psn, rsn=rsn, **flags))

    def link(self, qp, base, holes):
        """Knit a node into the list and notify the sender. :meth:`ring` notifies the card."""
        node = Node(qp.qpn, qp.generation, base & MASK, qp.rsn & MASK, choose_encoding(holes), tuple(holes))
        line = self.free.popleft()
        self.blocks[line] = node.pack()
        self.seen["begins again"] += bool(qp.linked and not qp.nodes)
        if qp.nodes and (last := self.blocks[before := qp.nodes[-1][0]]) is not None:
            pointer = node.pack(next_line=line, next_adjacent=int(line == before + 1))[:POINTER_BYTES]
            self.blocks[before] = pointer + last[POINTER_BYTES:]
        qp.nodes.append((line, node))
        qp.events.append(line)
        qp.todo += [((base + h) & MASK, qp.rsn + i) for i, h in enumerate(holes)]
        qp.rsn += len(holes)
        qp.linked += 1
        qp.matcher.link(1, line)
        self.seen[node.encoding.name] += 1

    def ring(self, qp, nodes=1):
        """Notify the card of ``nodes`` further linked nodes."""
        self.port.link(qp.qpn, qp.generation, nodes, self.memory.number(qp.events[0]))
        for _ in range(nodes):
            qp.events.popleft()

    def _on_read(self, line, count):
        assert 1 <= count <= 4 and line % 64 + count <= 64, "a read across 4 KiB"
        for each in range(line, line + count):
            assert self.memory.inside(each), f"read outside the extents: {each:#x}"
        self.seen["lines in one read"] = max(self.seen["lines in one read"], count)
        return range(line, line + count)

    def _on_answer(self, lines):
        self.read.update(lines)
        for line in lines:
            if block := self.blocks.get(line):
                ends = not abi.NODE.unpack(block).next_line
                self.seen["read again for its pointer"] += line in self._ends and not ends
                (self._ends.add if ends else self._ends.discard)(line)
        return [self.blocks.get(line, self.rng.randbytes(64)) for line in lines]    # reads also cover free blocks

    def _judged(self, record, verdict):
        """Pass a packet on to the model's matcher, in the same order."""
        qp, psn, rsn, ticket = record
        qp.in_flight -= 1
        self.seen[f"verdict {verdict.name}"] += 1
        if self.exact and verdict in (Verdict.MATCH, Verdict.UNMATCHED, Verdict.PROBE):
            before = len(qp.matcher.retired)
            if verdict == Verdict.PROBE:
                qp.matcher.probe(rsn)
            elif verdict == Verdict.UNMATCHED:  # its hole stays open, but earlier nodes are passed over
                qp.matcher.not_matched(rsn, self.slack)
            else:
                reason = qp.matcher.match(psn, rsn, self.slack)
                if reason == abi.Reason.OK:
                    qp.filled.add(psn)
            qp.expected += [(n, ticket) for n in list(qp.matcher.retired)[before:]]

    def _reported(self, report):
        kind = abi.REPORT_RETIRE.unpack(report).kind
        if kind == abi.ReportKind.QP_ERROR:
            event = abi.REPORT_EVENT.unpack(report)
            assert report == abi.REPORT_EVENT.pack(kind=kind, reason=event.reason, qpn=event.qpn,
                                                   generation=self.qps[event.qpn].generation), "more than an error"
            self.seen[f"QP_ERROR {event.reason.name}"] += 1
        elif kind == abi.ReportKind.RETIRE:
            self._retire_reports.put_nowait(abi.REPORT_RETIRE.unpack(report))
        else:
            self._node_reports.put_nowait(Node.unpack(report))

    def _qp_of(self, report):
        """Return the QP of a report, or None if it no longer exists."""
        qp = self.qps.get(report.qpn)
        return qp if qp is not None and qp.generation == report.generation else None

    async def _count(self):
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            for name in Adamap.COUNTS:
                self.seen[name] += int(getattr(dut, f"count_{name}").value)
            if int(dut.drop__stb.value):
                self.seen[abi.Reason(int(dut.drop__reason.value)).name] += 1
            if int(dut.broken__stb.value):
                self.seen[f"broken {abi.Reason(int(dut.broken__reason.value)).name}"] += 1

    async def _link_nodes(self):
        while True:
            node = await self._node_reports.get()
            while len(self.free) < RESERVE:
                await RisingEdge(self.dut.clk)
            if (qp := self._qp_of(node)) is None:
                continue
            psns = set(node.psns)
            assert not psns & qp.lost, "a PSN was lost twice"
            qp.lost |= psns
            self.link(qp, node.base_psn, list(node.holes))
            self.ring(qp)

    async def _take_back_nodes(self):
        while True:
            retire = await self._retire_reports.get()
            if (qp := self._qp_of(retire)) is None:
                continue
            line, node = qp.nodes.popleft()
            assert (retire.line, retire.rsn) == (line, node.rsn), "not the head was retired"
            assert retire.next_rsn == (node.rsn + len(node.holes)) & MASK
            left = open_holes(node.encoding, node.holes, retire.open)
            assert retire.residue == retire.open.bit_count() == len(left)
            if self.exact:
                while not qp.expected:
                    await RisingEdge(self.dut.clk)
                want, ticket = qp.expected.popleft()
                assert (want.line, want.open) == (line, retire.open), f"{retire.open:#x}, expected {want.open:#x}"
                assert self.port.placed >= ticket, "retired before the packet was placed"
            else:
                qp.filled |= {p for p, h in zip(node.psns, node.holes, strict=True) if h not in left}
            del self.blocks[line]
            self._ends.discard(line)
            self.free.append(line)
            self.retired += 1
            if left:
                for piece in pieces_of(left):
                    self.link(qp, node.base_psn + piece[0], [h - piece[0] for h in piece])
                    self.ring(qp)


async def set_up(dut, *, latency, depth, watermark, node_age_ns=NEVER_NS, exact=True, slack=1, rng=None):
    """Start the clock, set registers and extents; return the :class:`ClosedLoop`, without QPs."""
    await start_clock(dut)
    loop = ClosedLoop(dut, rng or random.Random(bench_seed()), exact=exact, slack=slack, latency=latency)
    loop.port.configure(reorder_distance=1, node_age_ns=node_age_ns, retransmit_slack=slack, prefetch_depth=depth,
                        prefetch_watermark=watermark)
    for index, (first, count) in enumerate(loop.memory.extents):
        await loop.port.extent(index, first, count)
    return loop
