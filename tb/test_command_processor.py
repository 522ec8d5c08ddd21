"""Command processor: every command, every way to be refused, and what must be true before an answer."""

import dataclasses
import random
from collections import Counter

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.triggers import FallingEdge, RisingEdge

from weft.hdl import layouts
from weft.hdl.abi import (
    BLOCK_BYTES,
    COMMAND,
    COUNTER_WIDTH,
    COUNTERS,
    PAGE_2M,
    PAGE_4K,
    RESPONSE,
    CommandOpcode,
    CommandStatus,
    QpState,
)
from weft.hdl.command import CommandProcessor, Extent, ListDestroy
from weft.hdl.params import preset
from weft.hdl.table.mr import MrTable, mr_read_port
from weft.hdl.table.page import PageTable, page_read_port
from weft.hdl.table.qp import QpTable, qp_read_port
from weft.model.functional.translate import MrEntry, QpEntry, page_count
from weft.tb.clock import start_clock
from weft.tb.sim import SIMULATORS, bench_seed, simulate
from weft.tb.stream import StreamSink, StreamSource

PARAMS = preset("test").with_(ptes=1024)
LONGEST = ((1 << PARAMS.extent_blocks_log2) - 2) * BLOCK_BYTES
Op, Status = CommandOpcode, CommandStatus
RESULTS = (0x11111111, 0x22222222, 0x33333333, 0x44444444)
HOST_COUNTERS = [(0x9000_0000_0001 * (n + 3)) % (1 << COUNTER_WIDTH) for n in range(len(COUNTERS))]


class CommandBench(wiring.Component):
    """:class:`CommandProcessor` with its tables; the second read port of each belongs to the bench."""

    def __init__(self, params):
        self.processor = CommandProcessor(params)
        self.params = params
        self.passed = {n: member for n, member in self.processor.signature.members.items()
                       if not n.endswith(("_read", "_write"))}
        super().__init__(self.passed | {
            "see_qp": In(qp_read_port(params)),
            "see_mr": In(mr_read_port(params)),
            "see_page": In(page_read_port(params)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.processor = processor = self.processor
        for name, member in self.passed.items():
            inner, outer = getattr(processor, name), getattr(self, name)
            if member.is_signature:
                connect(m, inner, flipped(outer))
            else:
                m.d.comb += outer.eq(inner) if member.flow is Out else inner.eq(outer)
        for name, table, readers in (("qp", QpTable, 2), ("mr", MrTable, 2), ("page", PageTable, 1)):
            m.submodules[name] = instance = table(self.params, readers=readers)
            connect(m, getattr(processor, f"{name}_write"), instance.write)
            connect(m, flipped(getattr(self, f"see_{name}")), instance.read[readers - 1])
            if readers == 2:
                connect(m, getattr(processor, f"{name}_read"), instance.read[0])
        return m


class Env:
    """Host memory, adamap, pipelines and counters around the processor, all of them slow at random."""

    def __init__(self, dut, rng, pause=0.3):
        self.dut, self.rng, self.pause = dut, rng, pause
        clk = dut.clk
        self.commands = StreamSource(dut, "i", clk, pause=pause, rng=rng)
        self.errors = StreamSource(dut, "i_qp_error", clk, pause=0, rng=rng)
        self.responses, self.creates, self.destroys, self.extents, self.requests, self.beats = (
            StreamSink(dut, n, clk, pause=pause, rng=rng)
            for n in ("o", "o_list_create", "o_list_destroy", "o_extent", "o_dma_request", "o_dma_data"))
        self.lines = StreamSink(dut, "o_line_request", clk, pause=pause, rng=rng)
        self.memory, self.bad_lines = {}, set()
        self.retired, self.answered, self.tag = 0, 0, 0
        self.seen = Counter()
        self.before_destroyed = self.before_drained = None  # coroutines called there
        self.destroy = None
        self.destroyed = self.drains = self.queries = 0
        self.overtakes = self.in_flight_most = 0
        for loop in (self._adamap, self._drain, self._query, self._counters, self._line_reads, self._count_retires):
            cocotb.start_soon(loop())

    async def cycles(self, most):
        for _ in range(self.rng.randrange(1, most)):
            await RisingEdge(self.dut.clk)

    async def _adamap(self):
        self.dut.list_destroyed.value = 0
        while True:
            self.destroy = ListDestroy.from_bits(await self.destroys.recv())
            await self.cycles(20)
            if self.before_destroyed:
                await self.before_destroyed()
            self.dut.list_destroyed.value = 1
            self.destroyed += 1
            await RisingEdge(self.dut.clk)
            self.dut.list_destroyed.value = 0

    async def _drain(self):
        self.dut.drain_done.value = 0
        while True:
            await RisingEdge(self.dut.clk)
            if not int(self.dut.drain_request.value):
                continue
            await self.cycles(20)
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
        self.dut.query_done.value = 0
        while True:
            await RisingEdge(self.dut.clk)
            if int(self.dut.query_stb.value):
                qpn = int(self.dut.query_qpn.value)
                await self.cycles(9)
                assert int(self.dut.query_qpn.value) == qpn and not int(self.dut.query_stb.value)
                self.queries += 1
                self.dut.query_done.value = 1
                self.dut.query_result.value = sum((r + qpn) << 32 * n for n, r in enumerate(RESULTS))
                await RisingEdge(self.dut.clk)
                self.dut.query_done.value, self.dut.query_result.value = 0, 0

    async def _counters(self):
        delayed = 0
        while True:
            await RisingEdge(self.dut.clk)
            self.dut.counter_data.value = delayed
            delayed = HOST_COUNTERS[int(self.dut.counter_index.value)]

    async def _line_reads(self):
        """Answer requests in any order, the lines of different ones interleaved."""
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
                    "data": int.from_bytes(self.memory.get(line, bytes(64)), "little"), "tag": request.tag | 0x3000,
                    "index": index, "last": last, "error": line in self.bad_lines}).as_bits()
            await RisingEdge(self.dut.clk)

    async def _count_retires(self):
        while True:
            await RisingEdge(self.dut.clk)
            self.retired += int(self.dut.retire.value)

    def post(self, opcode, **fields):
        """Queue a command; its tag."""
        self.tag = self.tag + 1 & 0xFFFF
        self.commands.send_nowait(COMMAND.pack(phase=self.rng.randrange(2), opcode=opcode, tag=self.tag, **fields))
        return self.tag

    async def answer(self, tag, opcode):
        """The next response, which must be that of ``tag``."""
        response = RESPONSE.unpack((await self.responses.recv()).to_bytes(64, "little"))
        assert response.tag == tag and response.opcode == opcode and response.phase == 0
        self.answered += 1
        self.seen[Op(opcode) if opcode in Op._value2member_map_ else "unknown", response.status] += 1
        return response

    async def do(self, opcode, expected=Status.OK, **fields):
        """One command, and its answer."""
        response = await self.answer(self.post(opcode, **fields), opcode)
        assert response.status == expected, (Op(opcode), fields, response.status)
        return response

    async def see(self, table, index):
        """Entry of a table, through the bench's read port."""
        getattr(self.dut, f"see_{table}__index").value = index
        getattr(self.dut, f"see_{table}__en").value = 1
        await RisingEdge(self.dut.clk)
        await FallingEdge(self.dut.clk)
        value = int(getattr(self.dut, f"see_{table}__entry").value)
        await RisingEdge(self.dut.clk)
        return value

    async def qp(self, qpn):
        e = layouts.qp_entry().from_bits(await self.see("qp", qpn))
        return QpEntry(e.state, e.generation, e.pd, e.access)

    async def mr(self, index):
        e = layouts.mr_entry().from_bits(await self.see("mr", index))
        return MrEntry(**{f.name: getattr(e, f.name) for f in dataclasses.fields(MrEntry)})


async def start(dut, pause=0.3):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    return Env(dut, rng, pause)


def limit(us):
    return cocotb.test(timeout_time=us, timeout_unit="us")


@limit(200)
async def qp_lives_and_dies(dut):
    env = await start(dut)
    values = {"qpn": 5, "generation": 9, "pd": 0xABCDEF, "access": 0xA, "psn": 0xFEDC_BA98, "address": 0x1_2345_6740}
    born = QpEntry(QpState.RTS, 9, 0xABCDEF, 0xA)
    env.creates.pause = 1.0
    tag = env.post(Op.QP_CREATE, **values)
    await env.cycles(100)
    while not int(dut.o_list_create__valid.value):
        await RisingEdge(dut.clk)
    assert await env.qp(5) == QpEntry(), "in the table before its list exists"
    env.creates.pause = 0.3
    assert (await env.answer(tag, Op.QP_CREATE)).status == Status.OK
    assert await env.qp(5) == born
    create = layouts.ListCreate.from_bits(env.creates.recv_nowait())
    assert (create.qpn, create.generation, create.psn, create.line) == (5, 9, 0xFEDC_BA98, 0x1_2345_6740 >> 6)
    await env.do(Op.QP_CREATE, Status.IN_USE, **values)
    await env.do(Op.QP_CREATE, Status.BAD_VALUE, **(values | {"qpn": 6, "address": 0x1_2345_6741}))
    await env.do(Op.QP_CREATE, Status.BAD_INDEX, **(values | {"qpn": PARAMS.qps}))
    assert len(env.creates) == 0
    result = await env.do(Op.QP_QUERY, qpn=5)
    assert (result.result0, result.result1, result.result2, result.result3) == tuple(r + 5 for r in RESULTS)
    for state in (QpState.RTR, QpState.RTS, QpState.RTS):
        await env.do(Op.QP_MODIFY, qpn=5, qp_state=state)
        assert await env.qp(5) == dataclasses.replace(born, state=state)
    for state in (QpState.RESET, 1, 4, 5, 7):
        await env.do(Op.QP_MODIFY, Status.BAD_VALUE, qpn=5, qp_state=state)
    env.errors.send_nowait(5)
    env.errors.send_nowait(6)                  # no QP
    env.errors.send_nowait(5 | PARAMS.qps << 3)  # beyond the table
    await env.errors.idle()
    await env.do(Op.SET_NETWORK)
    assert await env.qp(5) == dataclasses.replace(born, state=QpState.ERR)
    assert await env.qp(6) == QpEntry()
    await env.do(Op.QP_MODIFY, Status.BAD_VALUE, qpn=5, qp_state=QpState.RTS)
    assert await env.qp(5) == dataclasses.replace(born, state=QpState.ERR), "only its destruction ends ERR"
    await env.do(Op.QP_MODIFY, qpn=5, qp_state=QpState.ERR)

    async def gone():
        assert (await env.qp(5)).state == QpState.RESET, "still in the table"

    async def drained():
        assert env.drains == 1, "packets of the QP may still come to its list"

    env.before_destroyed, env.before_drained = drained, gone
    await env.do(Op.QP_DESTROY, qpn=5)
    assert (env.destroyed, env.drains) == (1, 1)
    assert (env.destroy.qpn, env.destroy.generation) == (5, 9)
    for opcode in (Op.QP_DESTROY, Op.QP_MODIFY, Op.QP_QUERY):
        for qpn in (5, 6, PARAMS.qps + 5):
            await env.do(opcode, Status.BAD_INDEX, qpn=qpn, qp_state=QpState.RTS)
    assert (env.destroyed, env.drains, env.queries) == (1, 1, 1)
    await env.do(Op.QP_CREATE, **(values | {"generation": 10}))
    assert await env.qp(5) == dataclasses.replace(born, generation=10)
    await env.cycles(5)
    assert env.retired == env.answered


@limit(200)
async def key_is_revoked_before_the_answer(dut):
    env = await start(dut)
    mr = MrEntry(key_tag=0x5A, access=0xB, pd=0xABCDEF, va=0xFFFF_0000_1234_5678, length=0x1234, pte_index=33)
    fields = dataclasses.asdict(mr) | {"mr_index": 3}
    del fields["valid"]
    await env.do(Op.MR_CREATE, **fields)
    assert await env.mr(3) == mr
    await env.do(Op.MR_CREATE, Status.IN_USE, **(fields | {"key_tag": 1}))
    assert await env.mr(3) == mr

    async def gone():
        assert await env.see("mr", 3) == 0, "still in the table"

    env.before_drained = gone
    await env.do(Op.MR_DESTROY, mr_index=3)
    assert env.drains == 1
    for index in (3, 4, PARAMS.mrs + 3):
        await env.do(Op.MR_DESTROY, Status.BAD_INDEX, mr_index=index)
    await env.do(Op.MR_CREATE, Status.BAD_INDEX, **(fields | {"mr_index": PARAMS.mrs}))
    assert env.drains == 1
    await env.do(Op.MR_CREATE, **(fields | {"page_2m": 1}))
    assert await env.mr(3) == dataclasses.replace(mr, page_2m=1)


@limit(2000)
async def memory_regions_must_fit(dut):
    env = await start(dut, pause=0)
    rng = env.rng
    for _ in range(600):
        page_2m = rng.randrange(2)
        size = PAGE_2M if page_2m else PAGE_4K
        pte_index = rng.choice([0, rng.randrange(PARAMS.ptes), PARAMS.ptes, rng.getrandbits(32), 0xFFFF_FFFF])
        length = rng.choice([
            rng.randrange(2 * size), (PARAMS.ptes - pte_index) * size + rng.randrange(-1, 2), (1 << 48) - 1, 1 << 48,
            (PARAMS.ptes - pte_index) * size - rng.randrange(size), rng.getrandbits(64)]) % (1 << 64)
        va = rng.choice([rng.getrandbits(64), (1 << 64) - length + rng.randrange(-1, 2), 0, size, size - 1]) % (1 << 64)
        good = (length < 1 << 48 and va + length <= 1 << 64
                and pte_index + page_count(va, length, size) <= PARAMS.ptes)
        fields = {"mr_index": rng.randrange(PARAMS.mrs), "va": va, "length": length, "pte_index": pte_index,
                  "page_2m": page_2m}
        await env.do(Op.MR_CREATE, Status.OK if good else Status.BAD_VALUE, **fields)
        if good:
            await env.do(Op.MR_DESTROY, mr_index=fields["mr_index"])
    assert env.seen[Op.MR_CREATE, Status.OK] > 50 and env.seen[Op.MR_CREATE, Status.BAD_VALUE] > 50, env.seen


@limit(2000)
async def page_table_is_copied(dut):
    env = await start(dut, pause=0.2)
    rng, table = env.rng, {}

    async def compare():
        for n in range(PARAMS.ptes):
            assert await env.see("page", n) == table.get(n, 0), n

    for case in ["good"] * 6 + ["full", "bad value", "dma error", "both", "good"]:
        count = 512 if case == "full" else rng.randrange(1, 40) if case == "good" else rng.randrange(100, 400)
        first = PARAMS.ptes - count if case == "full" else rng.randrange(PARAMS.ptes - count + 1)
        line = rng.getrandbits(50)
        entries = [rng.getrandbits(52) << 12 for _ in range(count)]
        env.bad_lines = set()
        bad = set()
        if case in ("bad value", "both"):
            bad = set(rng.sample(range(count), 3))
            for n in bad:
                entries[n] |= 1 << rng.randrange(12)
        if case in ("dma error", "both"):
            dead = rng.randrange((count + 7) // 8)
            env.bad_lines = {line + dead}
            bad |= set(range(8 * dead, 8 * dead + 8))
        text = b"".join(e.to_bytes(8, "little") for e in entries)
        text += bytes(rng.getrandbits(8) for _ in range(-len(text) % 64))
        env.memory = {line + n: text[64 * n:64 * n + 64] for n in range(len(text) // 64)}
        status = {"bad value": Status.BAD_VALUE, "dma error": Status.DMA_ERROR, "both": Status.DMA_ERROR}.get(
            case, Status.OK)
        await env.do(Op.PAGE_TABLE_WRITE, status, pte_index=first, count=count, address=line * 64)
        table |= {first + n: e >> 12 for n, e in enumerate(entries) if n not in bad}
    await compare()
    assert env.overtakes > 20 and env.in_flight_most >= 3, (env.overtakes, env.in_flight_most)
    lines = env.lines.received
    for refusal, fields in (
        (Status.BAD_INDEX, {"pte_index": PARAMS.ptes - 7, "count": 8}),
        (Status.BAD_INDEX, {"pte_index": 0xFFFF_FFFF, "count": 1}),
        (Status.BAD_VALUE, {"count": 0}), (Status.BAD_VALUE, {"count": 513}),
        (Status.BAD_VALUE, {"count": 8, "address": 8}),
    ):
        await env.do(Op.PAGE_TABLE_WRITE, refusal, **fields)
    assert env.lines.received == lines
    await compare()


@limit(200)
async def other_commands(dut):
    env = await start(dut)
    await env.do(Op.SET_NETWORK, mac=0x0123_4567_89AB, ip=0x0A00_0001)
    assert (int(dut.mac.value), int(dut.ip.value)) == (0x0123_4567_89AB, 0x0A00_0001)
    last = PARAMS.knit_extents - 1
    for index, address, length in ((0, 64, 0), (last, (1 << 64) - 128, 128), (3, 1 << 20, LONGEST)):
        await env.do(Op.EXTENT_SET, extent=index, address=address, length=length)
        extent = Extent.from_bits(env.extents.recv_nowait())
        assert (extent.index, extent.base, extent.length) == (index, address // 64, length // 64)
    await env.do(Op.EXTENT_SET, Status.BAD_INDEX, extent=PARAMS.knit_extents)
    for address, length in ((32, 64), (64, 32), (64, LONGEST + 64), (64, 1 << 38), ((1 << 64) - 64, 128)):
        await env.do(Op.EXTENT_SET, Status.BAD_VALUE, address=address, length=length)
    assert len(env.extents) == 0
    await env.do(Op.STATISTICS, Status.BAD_VALUE, address=0x1_0020)
    assert len(env.requests) == 0
    for _ in range(2):
        await env.do(Op.STATISTICS, address=0x1_0040)
        request = layouts.DmaRequest.from_bits(env.requests.recv_nowait())
        beats = [layouts.Beat.from_bits(b) for b in (env.beats.recv_nowait() for _ in range(len(env.beats)))]
        text = b"".join(c.to_bytes(8, "little") for c in HOST_COUNTERS)
        text += bytes(-len(text) % 64)
        assert (request.address, request.length, request.last) == (0x1_0040, len(text), 1)
        assert b"".join(b.data.to_bytes(64, "little") for b in beats) == text
        assert [(b.last, b.empty, b.error) for b in beats] == [(n == len(beats) - 1, 0, 0) for n in range(len(beats))]
    for opcode in (0, 11, 64, 127):
        tag = env.post(opcode)
        assert (await env.answer(tag, opcode)).status == Status.BAD_OPCODE


@limit(200)
async def errors_get_through_while_a_command_waits(dut):
    env = await start(dut, pause=0)
    for qpn in (1, 2):
        await env.do(Op.QP_CREATE, qpn=qpn)

    async def break_other():
        env.errors.send_nowait(2)
        env.errors.send_nowait(1)
        await env.errors.idle()

    env.before_destroyed = break_other
    await env.do(Op.QP_DESTROY, qpn=1)
    assert (await env.qp(1)).state == QpState.RESET
    assert (await env.qp(2)).state == QpState.ERR


@limit(1000)
async def burst_is_answered_in_order(dut):
    env = await start(dut, pause=0.5)
    rng, posted = env.rng, []
    for _ in range(150):
        opcode = rng.choice([*Op, 0, 99])
        fields = {"qpn": rng.randrange(3), "mr_index": rng.randrange(3), "qp_state": rng.choice([2, 3, 6]),
                  "count": rng.randrange(1, 9)}
        posted.append((env.post(opcode, **fields), opcode))
        if rng.random() < 0.1:
            env.errors.send_nowait(rng.randrange(3))
    posted += [(env.post(Op.QP_CREATE, qpn=0), Op.QP_CREATE) for _ in range(2)]    # the second one is surely in use
    for tag, opcode in posted:
        await env.answer(tag, opcode)
    await env.cycles(50)
    assert env.retired == len(posted) and len(env.responses) == 0
    assert not int(dut.busy.value)
    for wanted in [(op, Status.OK) for op in Op] + [("unknown", Status.BAD_OPCODE), (Op.QP_CREATE, Status.IN_USE)]:
        assert env.seen[wanted], (wanted, env.seen)


@limit(200)
async def reset_clears_the_tables(dut):
    env = await start(dut)
    await env.do(Op.QP_CREATE, qpn=3)
    await env.do(Op.MR_CREATE, mr_index=PARAMS.mrs - 1, length=1)
    dut.rst.value = 1
    await env.cycles(5)
    dut.rst.value = 0
    await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    assert not int(dut.tables_clear.value) and int(dut.busy.value)
    env.errors.send_nowait(3)
    await env.do(Op.QP_MODIFY, Status.BAD_INDEX, qpn=3, qp_state=QpState.RTS)
    assert int(dut.tables_clear.value)
    assert await env.see("mr", PARAMS.mrs - 1) == 0
    assert await env.see("qp", 3) == 0


@pytest.mark.parametrize("sim", SIMULATORS)
def test_commands_are_executed_and_answered(sim):
    simulate(CommandBench(PARAMS), name="command_processor", bench=__name__, sim=sim)
