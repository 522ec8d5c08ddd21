"""The command processor with its tables and all its neighbours, for benches."""

import dataclasses
import random
from collections import Counter

import cocotb
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.triggers import FallingEdge, RisingEdge

from weft.hdl.command.processor import CommandProcessor
from weft.hdl.contract.abi import (
    BLOCK_BYTES,
    COMMAND,
    COUNTER_WIDTH,
    COUNTERS,
    PTE_BYTES,
    RESPONSE,
    CommandOpcode,
    CommandStatus,
    pte_damage,
)
from weft.hdl.contract.params import preset
from weft.hdl.part import layouts
from weft.hdl.table.kinds import MR_TABLE, PAGE_TABLE, QP_TABLE
from weft.model.functional.translate import MrEntry, QpEntry
from weft.tb.sim.flow.simulate import bench_seed
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.hdl.reserved import junk

PARAMS = preset("test").with_(ptes=1024)
Op, Status = CommandOpcode, CommandStatus
RESULTS = (0x11111111, 0x22222222, 0x33333333, 0x44444444)
DRAIN_CYCLES = 20       # at most
NO_PAGES = pte_damage(0).to_bytes(PTE_BYTES, "little") * (BLOCK_BYTES // PTE_BYTES)     # a line of valid entries
HOST_COUNTERS = [(0x9000_0000_0001 * (n + 3)) % (1 << COUNTER_WIDTH) for n in range(len(COUNTERS))]


class CommandBench(wiring.Component):
    """:class:`CommandProcessor` with its tables; the second read port of each belongs to the bench."""

    def __init__(self, params):
        self.processor = CommandProcessor(params)
        self.params = params
        members = self.processor.signature.members
        self.passed = [name for name in members if not name.endswith(("_read", "_write"))]
        super().__init__({name: members[name] for name in self.passed} | {
            "see_qp": In(QP_TABLE.read_port(params)),
            "see_mr": In(MR_TABLE.read_port(params)),
            "see_page": In(PAGE_TABLE.read_port(params)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.processor = processor = self.processor
        for name in self.passed:
            member, inner, outer = processor.signature.members[name], getattr(processor, name), getattr(self, name)
            if member.is_signature:
                connect(m, inner, flipped(outer))
            else:
                m.d.comb += outer.eq(inner) if member.flow is Out else inner.eq(outer)
        for name, table, readers in (("qp", QP_TABLE, 2), ("mr", MR_TABLE, 2), ("page", PAGE_TABLE, 1)):
            m.submodules[name] = instance = table.memory(self.params, readers=readers)
            connect(m, getattr(processor, f"{name}_write"), instance.write)
            connect(m, flipped(getattr(self, f"see_{name}")), instance.read[readers - 1])
            if readers == 2:
                connect(m, getattr(processor, f"{name}_read"), instance.read[0])
        return m


class Env:
    """Host memory, adamap, pipelines and counters around the processor, all with random delays."""

    def __init__(self, dut, rng, pause=0.3):
        self.dut, self.rng, self.pause = dut, rng, pause
        clk = dut.clk
        self.commands = StreamSource(dut, "i", clk, pause=pause, rng=rng)
        self.errors = StreamSource(dut, "i_qp_error", clk, pause=0, rng=rng)
        self.responses, self.creates, self.destroys, self.extents, self.requests, self.beats = (
            StreamSink(dut, n, clk, pause=pause, rng=rng)
            for n in ("o", "qp_control__create", "qp_control__destroy", "o_extent", "o_dma_request", "o_dma_data"))
        self.lines = StreamSink(dut, "o_line_request", clk, pause=pause, rng=rng)
        self.memory, self.bad_lines = {}, set()
        self.retired, self.answered, self.tag = 0, 0, 0
        self.seen = Counter()
        self.before_destroyed = self.before_drained = self.before_flushed = None    # coroutine functions
        self.destroy = None
        self.destroyed = self.flushes = self.drains = self.queries = 0
        self.overtakes = self.in_flight_most = 0
        for loop in (self._adamap, self._flush, self._drain, self._query, self._counters, self._line_reads,
                     self._count_retires):
            cocotb.start_soon(loop())

    async def cycles(self, most):
        for _ in range(self.rng.randrange(1, most)):
            await RisingEdge(self.dut.clk)

    async def _adamap(self):
        self.dut.qp_control__destroyed.value = 0
        while True:
            self.destroy = layouts.QpRef.from_bits(await self.destroys.recv())
            await self.cycles(20)
            if self.before_destroyed:
                await self.before_destroyed()
            self.dut.qp_control__destroyed.value = 1
            self.destroyed += 1
            await RisingEdge(self.dut.clk)
            self.dut.qp_control__destroyed.value = 0

    async def _flush(self):
        dut = self.dut
        if not hasattr(dut, "o_flush__valid"):
            return
        dut.o_flush__ready.value = 0
        while True:
            await RisingEdge(dut.clk)
            if not int(dut.o_flush__valid.value):
                continue
            qpn = int(dut.o_flush__payload.value)
            await self.cycles(20)
            if self.before_flushed:
                await self.before_flushed(qpn)
            assert int(dut.o_flush__valid.value) and not int(dut.drain_request.value)
            dut.o_flush__ready.value = 1
            self.flushes += 1
            await RisingEdge(dut.clk)
            dut.o_flush__ready.value = 0

    async def _drain(self):
        self.dut.drain_done.value = 0
        while True:
            await RisingEdge(self.dut.clk)
            if not int(self.dut.drain_request.value):
                continue
            await self.cycles(DRAIN_CYCLES)
            if self.before_drained:
                await self.before_drained()
            assert int(self.dut.drain_request.value)
            assert not int(self.dut.o__valid.value), "answered before the pipelines were empty"
            self.dut.drain_done.value = 1
            self.drains += 1
            await RisingEdge(self.dut.clk)
            self.dut.drain_done.value = 0
            await RisingEdge(self.dut.clk)
            assert not int(self.dut.drain_request.value)

    async def _query(self):
        self.dut.qp_control__query_done.value = 0
        while True:
            await RisingEdge(self.dut.clk)
            if int(self.dut.qp_control__query_stb.value):
                qpn = int(self.dut.qp_control__query_qpn.value)
                await self.cycles(9)
                assert int(self.dut.qp_control__query_qpn.value) == qpn
                assert not int(self.dut.qp_control__query_stb.value)
                self.queries += 1
                self.dut.qp_control__query_done.value = 1
                self.dut.qp_control__query_result.value = sum((r + qpn) << 32 * n for n, r in enumerate(RESULTS))
                await RisingEdge(self.dut.clk)
                self.dut.qp_control__query_done.value, self.dut.qp_control__query_result.value = 0, 0

    async def _counters(self):
        while True:
            await RisingEdge(self.dut.clk)
            self.dut.counters__data.value = HOST_COUNTERS[int(self.dut.counters__index.value)]

    async def _line_reads(self):
        """Answer requests in any order, with the lines of different requests interleaved."""
        waiting, number = [], 0
        self.dut.i_line__valid.value = 0
        while True:
            while len(self.lines):
                request = layouts.LineRequest.from_bits(self.lines.recv_nowait())
                assert 1 <= request.count <= 4
                assert request.line * 64 // 4096 == (request.line + request.count - 1) * 64 // 4096
                waiting.append([number, request, 0])
                number += 1
            self.in_flight_most = max(self.in_flight_most, len(waiting))
            self.dut.i_line__valid.value = 0
            if waiting and self.rng.random() < 0.7 and (len(waiting) > 2 or self.rng.random() < 0.02):
                pick = self.rng.choice(waiting)
                self.overtakes += pick[0] != waiting[0][0]
                _, request, index = pick
                line = request.line + index
                pick[2] += 1
                last = pick[2] == request.count
                if last:
                    waiting.remove(pick)
                self.dut.i_line__valid.value = 1
                self.dut.i_line__payload.value = layouts.LineData.const({
                    "data": int.from_bytes(self.memory.get(line, NO_PAGES), "little"), "tag": request.tag | 0x3000,
                    "index": index, "last": last, "error": line in self.bad_lines}).as_bits()
            await RisingEdge(self.dut.clk)

    async def _count_retires(self):
        while True:
            await RisingEdge(self.dut.clk)
            self.retired += int(self.dut.retire.value)

    def post(self, opcode, **fields):
        """Queue a command; return its tag."""
        self.tag = self.tag + 1 & 0xFFFF
        self.commands.send_nowait(COMMAND.pack(phase=self.rng.randrange(2), opcode=opcode, tag=self.tag, **fields,
                                               **junk(COMMAND, self.rng)))
        return self.tag

    async def answer(self, tag, opcode):
        """Return the next response, which must be that of ``tag``."""
        response = RESPONSE.unpack((await self.responses.recv()).to_bytes(64, "little"))
        assert response.tag == tag and response.opcode == opcode and response.phase == 0
        self.answered += 1
        self.seen[Op(opcode) if opcode in Op._value2member_map_ else "unknown", response.status] += 1
        return response

    async def do(self, opcode, expected=Status.OK, **fields):
        """Execute one command and check its response."""
        response = await self.answer(self.post(opcode, **fields), opcode)
        assert response.status == expected, (Op(opcode), fields, response.status)
        return response

    async def see(self, table, index):
        """Return an entry of a table, read through the bench's port."""
        getattr(self.dut, f"see_{table}__index").value = index
        getattr(self.dut, f"see_{table}__en").value = 1
        await RisingEdge(self.dut.clk)
        await FallingEdge(self.dut.clk)
        value = int(getattr(self.dut, f"see_{table}__entry").value)
        await RisingEdge(self.dut.clk)
        return value

    async def qp(self, index):
        e = layouts.qp_entry(PARAMS).from_bits(await self.see("qp", index))
        return QpEntry(**{f.name: getattr(e, f.name) for f in dataclasses.fields(QpEntry)})

    async def mr(self, index):
        e = layouts.mr_entry().from_bits(await self.see("mr", index))
        return MrEntry(**{f.name: getattr(e, f.name) for f in dataclasses.fields(MrEntry)})


async def start(dut, pause=0.3):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    return Env(dut, rng, pause)


def limit(us):
    """Return a decorator for a bench of the processor with a time limit."""
    return cocotb.test(timeout_time=us, timeout_unit="us")
