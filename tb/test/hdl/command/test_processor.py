"""Tests of the command processor: every command, every rejection, and the conditions of a response."""

import dataclasses

import pytest
from cocotb.triggers import FallingEdge, RisingEdge

from weft.driver.device.attached import MemoryFault
from weft.hdl.contract.abi import BLOCK_BYTES, COMMAND, PAGE_4K, RESPONSE, QpState, make_qpn
from weft.hdl.contract.wire import QPN_BITS
from weft.hdl.part import layouts
from weft.hdl.part.layouts import Extent
from weft.model.functional.card import FunctionalCard
from weft.model.functional.translate import QpEntry
from weft.model.loop import EventLoop
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.hdl.command.surroundings import (
    DRAIN_CYCLES,
    HOST_COUNTERS,
    NO_PAGES,
    PARAMS,
    RESULTS,
    CommandBench,
    Op,
    Status,
    limit,
    start,
)
from weft.tb.test.rounds import rounds

GENERATION = 0xFACE9      # a generation that sets all bits above the index
LONGEST = ((1 << PARAMS.extent_blocks_log2) - 2) * BLOCK_BYTES


def qpn(index, generation):
    """Return the QPN of an incarnation."""
    return make_qpn(index, generation, PARAMS.qpn_width)


@limit(200)
async def qp_is_created_and_destroyed(dut):
    env = await start(dut)
    values = {"qpn": qpn(5, GENERATION), "psn": env.rng.getrandbits(32),
              "pd": env.rng.getrandbits(24), "access": env.rng.getrandbits(4), "ip": env.rng.getrandbits(32),
              "psn_guard": env.rng.getrandbits(5)}
    born = QpEntry(QpState.RTS, GENERATION, *(values[name] for name in ("pd", "access", "ip", "psn_guard")))
    created = born
    env.creates.pause = 1.0
    tag = env.post(Op.QP_CREATE, **values)
    await env.cycles(100)
    while not int(dut.qp_control__create__valid.value):
        await RisingEdge(dut.clk)
    assert await env.qp(5) == QpEntry(), "in the table before its list exists"
    env.creates.pause = 0.3
    assert (await env.answer(tag, Op.QP_CREATE)).status == Status.OK
    assert await env.qp(5) == born
    create = layouts.ListCreate.from_bits(env.creates.recv_nowait())
    assert (create.qpn, create.generation, create.psn) == (5, GENERATION % 256, values["psn"])
    await env.do(Op.QP_CREATE, Status.IN_USE, **values)
    await env.do(Op.QP_CREATE, Status.IN_USE, **(values | {"qpn": qpn(5, GENERATION + 1)}))
    assert len(env.creates) == 0
    for opcode in (Op.QP_DESTROY, Op.QP_MODIFY, Op.QP_QUERY):
        for generation in (0, GENERATION ^ 1, GENERATION % 256, GENERATION ^ 1 << QPN_BITS - 1 - PARAMS.qpn_width):
            await env.do(opcode, Status.BAD_INDEX, qpn=qpn(5, generation), qp_state=QpState.ERR)
    assert await env.qp(5) == born, "another incarnation than the one that was meant"
    result = await env.do(Op.QP_QUERY, qpn=qpn(5, GENERATION))
    assert (result.result0, result.result1, result.result2, result.result3) == tuple(r + 5 for r in RESULTS)
    for state in (QpState.RTR, QpState.RTS, QpState.RTS):
        changed = dataclasses.replace(born, state=state, access=0x8 | state)
        drains = env.drains

        async def changed_first(changed=changed):
            assert await env.qp(5) == changed, "drained before the entry was changed"

        env.before_drained = changed_first
        await env.do(Op.QP_MODIFY, qpn=qpn(5, GENERATION), qp_state=state, access=changed.access)
        assert await env.qp(5) == changed and env.drains == drains + 1, "packets of the old entry are outstanding"
    env.before_drained, born, drains = None, changed, env.drains
    for state in (QpState.RESET, 1, 4, 5, 7):
        await env.do(Op.QP_MODIFY, Status.BAD_VALUE, qpn=qpn(5, GENERATION), qp_state=state)
    env.errors.send_nowait(5)
    env.errors.send_nowait(6)                  # no QP
    env.errors.send_nowait(5 | PARAMS.qps << 3)  # beyond the table
    await env.errors.idle()
    await env.do(Op.SET_NETWORK)
    assert await env.qp(5) == dataclasses.replace(born, state=QpState.ERR)
    assert await env.qp(6) == QpEntry()
    await env.do(Op.QP_MODIFY, Status.BAD_VALUE, qpn=qpn(5, GENERATION), qp_state=QpState.RTS)
    assert await env.qp(5) == dataclasses.replace(born, state=QpState.ERR), "only its destruction ends ERR"
    for _ in range(DRAIN_CYCLES + 5):
        await RisingEdge(dut.clk)
    assert env.drains == drains, "what changes nothing waits for nothing"
    await env.do(Op.QP_MODIFY, qpn=qpn(5, GENERATION), qp_state=QpState.ERR)
    assert await env.qp(5) == dataclasses.replace(born, state=QpState.ERR) and env.drains == drains + 1

    async def gone():
        assert (await env.qp(5)).state == QpState.RESET, "still in the table"

    async def drained():
        assert env.drains == drains + 2, "packets of the QP may still come to its list"

    env.before_destroyed, env.before_drained = drained, gone
    await env.do(Op.QP_DESTROY, qpn=qpn(5, GENERATION))
    assert (env.destroyed, env.drains) == (1, drains + 2)
    assert (env.destroy.qpn, env.destroy.generation) == (5, GENERATION % 256)
    for opcode in (Op.QP_DESTROY, Op.QP_MODIFY, Op.QP_QUERY):
        for number in (qpn(5, GENERATION), 5, 6, PARAMS.qps + 5):
            await env.do(opcode, Status.BAD_INDEX, qpn=number, qp_state=QpState.RTS)
    assert (env.destroyed, env.drains, env.queries) == (1, drains + 2, 1)
    await env.do(Op.QP_CREATE, **(values | {"qpn": qpn(5, GENERATION + 1)}))
    assert await env.qp(5) == dataclasses.replace(created, generation=GENERATION + 1)
    await env.cycles(5)
    assert env.retired == env.answered


@limit(200)
async def other_commands(dut):
    env = await start(dut)
    await env.do(Op.SET_NETWORK, mac=0x0123_4567_89AB, ip=0x0A00_0001)
    assert (int(dut.network__mac.value), int(dut.network__ip.value)) == (0x0123_4567_89AB, 0x0A00_0001)
    last = PARAMS.knit_extents - 1
    for index, address, length in ((0, 64, 0), (last, (1 << 64) - 128, 128), (3, 1 << 20, LONGEST)):
        await env.do(Op.EXTENT_SET, extent=index, address=address, length=length)
        extent = Extent.from_bits(env.extents.recv_nowait())
        assert (extent.index, extent.base, extent.lines) == (index, address // 64, length // 64)
    await env.do(Op.EXTENT_SET, Status.BAD_INDEX, extent=PARAMS.knit_extents)
    for address, length in ((32, 64), (64, 32), (64, LONGEST + 64), (64, 1 << 38), ((1 << 64) - 64, 128), (0, 64)):
        await env.do(Op.EXTENT_SET, Status.BAD_VALUE, address=address, length=length)
    assert len(env.extents) == 0
    await env.do(Op.STATISTICS, Status.BAD_VALUE, address=0x1_0020)
    assert len(env.requests) == 0
    somewhere = env.rng.getrandbits(58)
    for address in (somewhere << 6, ~somewhere % (1 << 58) << 6):
        await env.do(Op.STATISTICS, address=address)
        request = layouts.DmaRequest.from_bits(env.requests.recv_nowait())
        beats = [layouts.Beat.from_bits(b) for b in (env.beats.recv_nowait() for _ in range(len(env.beats)))]
        text = b"".join(c.to_bytes(8, "little") for c in HOST_COUNTERS)
        text += bytes(-len(text) % 64)
        assert (request.address, request.length, request.last) == (address, len(text), 1)
        assert b"".join(b.data.to_bytes(64, "little") for b in beats) == text
        assert [(b.last, b.empty, b.error) for b in beats] == [(n == len(beats) - 1, 0, 0) for n in range(len(beats))]
    for opcode in (0, 11, 64, 127):
        tag = env.post(opcode)
        assert (await env.answer(tag, opcode)).status == Status.BAD_OPCODE


@limit(200)
async def errors_are_reported_while_a_command_waits(dut):
    env = await start(dut, pause=0)
    for number in (1, 2):
        await env.do(Op.QP_CREATE, qpn=number)

    async def break_other():
        env.errors.send_nowait(2)
        env.errors.send_nowait(1)
        await env.errors.idle()

    env.before_destroyed = break_other
    await env.do(Op.QP_DESTROY, qpn=1)
    assert (await env.qp(1)).state == QpState.RESET
    assert (await env.qp(2)).state == QpState.ERR


@limit(4000)
async def burst_is_answered_in_order(dut):
    """Send random bursts until every command was executed and some were rejected."""
    env = await start(dut, pause=0.5)
    rng, count = env.rng, 0
    wanted = [(op, Status.OK) for op in Op] + [("unknown", Status.BAD_OPCODE), (Op.QP_CREATE, Status.IN_USE)]
    for _ in range(10):
        posted = []
        for _ in range(150):
            opcode = rng.choice([*Op, 0, 99])
            fields = {"qpn": rng.randrange(3), "mr_index": rng.randrange(3), "qp_state": rng.choice([2, 3, 6]),
                      "count": rng.randrange(1, 9)}
            posted.append((env.post(opcode, **fields), opcode))
            if rng.random() < 0.1:
                env.errors.send_nowait(rng.randrange(3))
        posted += [(env.post(Op.QP_CREATE, qpn=0), Op.QP_CREATE) for _ in range(2)]     # the second one is in use
        for tag, opcode in posted:
            await env.answer(tag, opcode)
        count += len(posted)
        if all(map(env.seen.get, wanted)):
            break
    await env.cycles(50)
    assert env.retired == count and len(env.responses) == 0
    assert not int(dut.busy.value)
    for each in wanted:
        assert env.seen[each], (each, env.seen)


BORDERS = {
    "qp_state": range(8), "qpn": range(4), "mr_index": (0, 1, PARAMS.mrs - 1, PARAMS.mrs), "page_2m": range(2),
    "va": (0, 4095, (1 << 21) + 1, (1 << 64) - 4096), "count": (0, 1, 7, 9, 9, 512, 513),
    "length": (0, 1, 64, 4096, LONGEST, LONGEST + 64, 1 << 22, (1 << 48) - 1, 1 << 48, (1 << 64) - 64),
    "pte_index": (0, 1, PARAMS.ptes - 7, PARAMS.ptes - 1, PARAMS.ptes), "extent": (0, PARAMS.knit_extents),
    "address": (0, 32, 64, 4096, 8192, (1 << 64) - 64)}


# Statuses of each command that these values cause.
STATUSES = {(op, Status.OK) for op in Op} | {("unknown", Status.BAD_OPCODE)} | {
    (op, Status.BAD_INDEX) for op in Op if op not in (Op.SET_NETWORK, Op.QP_CREATE, Op.STATISTICS)} | {
    (op, Status.BAD_VALUE) for op in (Op.QP_MODIFY, Op.MR_CREATE, Op.PAGE_TABLE_WRITE, Op.EXTENT_SET, Op.STATISTICS)
} | {(Op.QP_CREATE, Status.IN_USE), (Op.MR_CREATE, Status.IN_USE), (Op.PAGE_TABLE_WRITE, Status.DMA_ERROR)}


class Lines:
    """Host memory of the bench, for a model."""

    def __init__(self, env):
        self._env = env

    def read(self, address, length):
        lines = range(address // BLOCK_BYTES, -(-(address + length) // BLOCK_BYTES))
        if self._env.bad_lines.intersection(lines):
            raise MemoryFault
        return b"".join(self._env.memory.get(line % (1 << 58), NO_PAGES) for line in lines)[:length]

    def write(self, address, data):
        """Ignore the counters."""


@limit(4000)
async def statuses_and_pages_are_those_of_the_model(dut):
    """Send random commands with values at the limits; some page lists are damaged or unreadable in part."""
    env = await start(dut, pause=0)
    env.bad_lines = {4096 // BLOCK_BYTES, 8192 // BLOCK_BYTES + 1}
    env.memory = {8192 // BLOCK_BYTES: bytes(BLOCK_BYTES)}
    card = FunctionalCard(Lines(env), EventLoop(), None, None, checks_driver=False)
    card.params = PARAMS
    for _ in rounds(env.seen, STATUSES, least=600, most=3000):
        opcode = env.rng.choice([*Op, Op.PAGE_TABLE_WRITE, 0, 99])
        fields = {name: env.rng.choice(values) for name, values in BORDERS.items()}
        fields |= {"mac": env.rng.getrandbits(48), "ip": env.rng.getrandbits(32)}
        got = await env.answer(env.post(opcode, **fields), opcode)
        wanted = RESPONSE.unpack(card.tables.command(COMMAND.unpack(COMMAND.pack(opcode=opcode, **fields)))).status
        assert got.status == wanted, (opcode, fields, got.status, wanted)
        network = int(dut.network__mac.value), int(dut.network__ip.value)
        assert opcode != Op.SET_NETWORK or network == (card.mac, card.ip), fields
    for index in range(PARAMS.ptes):
        assert await env.see("page", index) * PAGE_4K == card.tables.ptes[index], index
    assert {*env.seen} == STATUSES


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
    simulate(CommandBench(PARAMS), name="command_processor", cases=__file__, sim=sim)


def test_processor_of_a_card_without_a_pacer():
    simulate(CommandBench(PARAMS.with_(pace_descriptors=0)), name="command_without_pacer", cases=__file__,
             sim=SIMULATORS[0])
