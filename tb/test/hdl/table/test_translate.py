"""Tests of address translation against the functional model."""

import dataclasses
import random
from collections import Counter

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.triggers import RisingEdge

from weft.hdl.contract.abi import (
    GENERATION_BITS,
    KEY_TAG_BITS,
    PAGE_4K,
    REMOTE_ACCESS,
    AccessFlag,
    QpState,
    Reason,
    make_key,
)
from weft.hdl.contract.params import preset
from weft.hdl.contract.wire import QPN_BITS
from weft.hdl.part import layouts
from weft.hdl.table.kinds import MR_TABLE, PAGE_TABLE, QP_TABLE
from weft.hdl.table.translate import Translate, TranslateRequest, Translation
from weft.model.functional.translate import CAN_SEND, PAYLOAD_MAX, MrEntry, QpEntry, Request, Result, translate
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.stream import StreamSink, StreamSource

PARAMS = preset("test").with_(ptes=256)
INCARNATION_BITS = QPN_BITS - PARAMS.qpn_width
MAX64 = (1 << 64) - 1
HUGE_PAGES = 6          # pages of the table that a huge MR takes


class Pages(dict):
    """The page table; a page index beyond it, of an MR that no command creates, continues at its start."""

    def __missing__(self, index):
        return self[index % PARAMS.ptes]


class TranslateBench(wiring.Component):
    """:class:`Translate` with its tables."""

    def __init__(self, params):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(TranslateRequest)), "o": Out(stream.Signature(Translation)),
            "enable": In(1), "busy": Out(1),
            "qp_write": In(QP_TABLE.write_port(params)), "mr_write": In(MR_TABLE.write_port(params)),
            "page_write": In(PAGE_TABLE.write_port(params)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.translate = translation = Translate(self.params)
        connect(m, flipped(self.i), translation.i)
        connect(m, translation.o, flipped(self.o))
        m.d.comb += [translation.enable.eq(self.enable), self.busy.eq(translation.busy)]
        for name, table in (("qp", QP_TABLE), ("mr", MR_TABLE), ("page", PAGE_TABLE)):
            m.submodules[name] = instance = table.memory(self.params, readers=1)
            connect(m, getattr(translation, f"{name}_read"), instance.read[0])
            connect(m, flipped(getattr(self, f"{name}_write")), instance.write)
        return m


def pack(shape, values):
    """Return the bits of a struct."""
    return shape.const(values).as_bits()


async def write(dut, table, index, value):
    """Write an entry through the port of a table."""
    getattr(dut, f"{table}_write__en").value = 1
    getattr(dut, f"{table}_write__index").value = index
    getattr(dut, f"{table}_write__entry").value = value
    await RisingEdge(dut.clk)
    getattr(dut, f"{table}_write__en").value = 0


def random_tables(rng):
    """Return tables with a QP in every state, and MRs of both page sizes, also at the ends of the address space."""
    states = [QpState.RESET, QpState.RTR, QpState.RTS, QpState.RTS, QpState.ERR]
    qps = {n: QpEntry(states[n % 5], rng.getrandbits(INCARNATION_BITS), rng.randrange(2),
                      rng.getrandbits(4) | rng.choice([0, 15]), rng.getrandbits(32), rng.getrandbits(5))
           for n in range(PARAMS.qps - 1)}
    qps[3] = dataclasses.replace(qps[3], access=qps[3].access & ~REMOTE_ACCESS)
    mrs, pte = {}, 0
    windows = AccessFlag.REMOTE_WRITE, AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ
    for n in range(0, PARAMS.mrs, 2):
        page_2m = rng.randrange(2)
        size = 1 << (21 if page_2m else 12)
        length = rng.choice([0, 1, rng.randrange(1, 4 * size), 3 * size]) if n % 8 else 3 * size
        if huge := rng.random() < 0.3:
            length = rng.getrandbits(rng.randint(26, 48)) | 1 << 25
        va = rng.choice([0, rng.getrandbits(48), rng.getrandbits(64) & -size, (1 << 64) - length, 0xFFFF_F000])
        va = min(va, (1 << 64) - max(length, 1))
        mr = MrEntry(key_tag=rng.getrandbits(8), access=rng.getrandbits(4) | rng.choice([0, 15]), pd=rng.randrange(2),
                     va=va, length=length, pte_index=pte, page_2m=page_2m)
        if n % 8 == 0:
            mr = dataclasses.replace(mr, access=rng.choice(windows), pd=3 if n % 16 else 2)
        pte += HUGE_PAGES if huge else mr.pages
        mrs[n] = mr
    # No command creates such an MR: it wraps. The translation must match the model nevertheless.
    mrs[PARAMS.mrs - 1] = MrEntry(key_tag=3, access=15, pd=0, va=(1 << 64) - 8192, length=16384, pte_index=pte)
    pages = Pages({n: rng.getrandbits(52) << 12 for n in range(PARAMS.ptes)})
    return qps, mrs, pages


def random_request(rng, qps, mrs):
    """Return an access near the boundaries of some MR, mostly with a valid key."""
    index = rng.choice(list(mrs))
    mr = mrs[index]
    key = make_key(index, mr.key_tag)
    if rng.random() < 0.1:
        beyond = make_key(PARAMS.mrs + index, mr.key_tag)
        key = rng.choice([key ^ 1 << rng.randrange(32), make_key(index ^ 1, 0), beyond])
    length = rng.choice([0, 1, 64, rng.randrange(PAYLOAD_MAX), PAYLOAD_MAX, PAYLOAD_MAX, PAYLOAD_MAX + 1])
    size = mr.page_bytes
    boundary = (mr.va // size + rng.randrange(1, 4)) * size
    behind = mr.va + mr.length + rng.getrandbits(rng.randrange(48))
    va = rng.choice([
        mr.va, mr.va - 1, behind, mr.va + mr.length - length, mr.va + mr.length - length + 1, mr.va + (1 << 48),
        rng.randrange(mr.va, mr.va + mr.length + 1), boundary - rng.randrange(length + 1), boundary,
        boundary - rng.randrange(length + 1), mr.va + rng.randrange(mr.length + 1) // 2,
    ]) & MAX64
    need = rng.choice([0, AccessFlag.LOCAL_WRITE, AccessFlag.REMOTE_WRITE, rng.getrandbits(4)])
    qpn = rng.choice([rng.randrange(PARAMS.qps), rng.choice([1, 2, 3]), rng.choice([2, 3]), rng.choice([2, 3, 7, 8])])
    if mr.window and rng.random() < 0.7:
        qpn, need = mr.pd, rng.choice([need, AccessFlag.REMOTE_WRITE])
    qp_need, generation = rng.randrange(2), 0
    if qp_need == CAN_SEND:     # no generation, and mostly an index within the table
        qpn |= (rng.random() < 0.03) << rng.randrange(PARAMS.qpn_width, QPN_BITS)
    else:
        generation = qps.get(qpn, QpEntry()).generation
        generation ^= (rng.random() < 0.06) << rng.randrange(INCARNATION_BITS)
    return Request(key, va, length, int(need), qpn, qp_need, generation)


def packed(request):
    """Return a request as the block's input."""
    fields = dataclasses.asdict(request)
    fields["qpn"] |= fields.pop("generation") << PARAMS.qpn_width
    return pack(TranslateRequest, fields)


def result_of(bits):
    """Return the block's output as a result of the model."""
    t = Translation.from_bits(bits)
    segments = tuple((s.address, s.length) for s in (t.segment0, t.segment1) if s.length)
    qp = QpEntry(t.qp_state, t.qp_generation, t.qp_pd, t.qp_access, t.qp_peer_ip, t.qp_psn_guard)
    assert t.qp_known == (t.qp_state != QpState.RESET)
    return Result(Reason(t.reason), segments, qp)


async def fill(dut, qps, mrs, pages):
    """Write the tables through their ports."""
    for n, qp in qps.items():
        await write(dut, "qp", n, pack(layouts.qp_entry(PARAMS), dataclasses.asdict(qp)))
    for n, mr in mrs.items():
        await write(dut, "mr", n, pack(layouts.mr_entry(), dataclasses.asdict(mr)))
    for n, address in pages.items():
        await write(dut, "page", n, address // PAGE_4K)


async def bench(dut):
    """Start the clock, with random tables and an idle card."""
    rng = random.Random(bench_seed())
    await start_clock(dut)
    dut.enable.value = 1
    tables = random_tables(rng)
    await fill(dut, *tables)
    return rng, tables


@cocotb.test(timeout_time=500, timeout_unit="us")
async def agrees_with_the_model(dut):
    rng, tables = await bench(dut)
    source = StreamSource(dut, "i", dut.clk, pause=0.2, rng=rng)
    sink = StreamSink(dut, "o", dut.clk, pause=0.3, rng=rng)
    requests = [random_request(rng, *tables[:2]) for _ in range(4000)]
    for request in requests:
        source.send_nowait(packed(request))
    seen = Counter()
    for request, bits in zip(requests, await sink.recv_many(len(requests)), strict=True):
        expected = translate(*tables, request)
        expected = dataclasses.replace(expected, qp=dataclasses.replace(
            expected.qp, generation=expected.qp.generation % (1 << GENERATION_BITS)))
        assert result_of(bits) == expected, (request, tables[1].get(request.key >> KEY_TAG_BITS))
        seen[expected.reason] += 1
        seen[f"{len(expected.segments)} segments"] += 1
        mr = tables[1].get(request.key >> KEY_TAG_BITS)
        if mr and mr.window and request.length and expected.reason in (Reason.OK, Reason.WRONG_PD):
            forbidden = request.need & REMOTE_ACCESS & ~expected.qp.access
            seen["window", expected.reason, bool(forbidden)] += 1
    for subject in (Reason.OK, Reason.UNKNOWN_QP, Reason.STALE_GENERATION, Reason.BAD_KEY, Reason.WRONG_PD,
                    Reason.OUT_OF_RANGE, Reason.NO_PERMISSION, "0 segments", "1 segments", "2 segments",
                    ("window", Reason.OK, True), ("window", Reason.OK, False), ("window", Reason.WRONG_PD, False)):
        assert seen[subject] > 20, seen


@cocotb.test(timeout_time=100, timeout_unit="us")
async def keeps_its_rate_and_latency(dut):
    rng, tables = await bench(dut)
    source = StreamSource(dut, "i", dut.clk)
    taken, answered, cycle = [], [], 0
    dut.o__ready.value = 1
    for _ in range(100):
        source.send_nowait(packed(random_request(rng, *tables[:2])))
    while len(answered) < 100:
        await RisingEdge(dut.clk)
        cycle += 1
        if int(dut.i__valid.value) and int(dut.i__ready.value):
            taken.append(cycle)
        if int(dut.o__valid.value):
            answered.append(cycle)
    assert [b - a for a, b in zip(taken, answered, strict=True)] == [Translate.LATENCY] * 100
    assert taken[-1] - taken[0] == 2 * 99
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    assert not int(dut.busy.value)


@cocotb.test(timeout_time=100, timeout_unit="us")
async def revoked_key_is_rejected(dut):
    _, (_, _, pages) = await bench(dut)
    mr = MrEntry(key_tag=7, access=15, pd=0, va=0x1000, length=4096, pte_index=0)
    await fill(dut, {2: QpEntry(QpState.RTS, 1, 0, 15)}, {1: mr}, {})
    source, sink = StreamSource(dut, "i", dut.clk), StreamSink(dut, "o", dut.clk)
    request = packed(Request(make_key(1, 7), 0x1000, 4096, 2, 2, generation=1))
    await source.send(request)
    assert result_of(await sink.recv()).segments == ((pages[0], 4096),)
    await write(dut, "mr", 1, 0)
    await source.send(request)
    assert result_of(await sink.recv()).reason == Reason.BAD_KEY
    dut.enable.value = 0
    await source.send(request)
    assert result_of(await sink.recv()) == Result(Reason.UNKNOWN_QP, (), QpEntry())


@pytest.mark.parametrize("sim", SIMULATORS)
def test_accesses_are_checked_and_translated(sim):
    simulate(TranslateBench(PARAMS), name="table_translate", cases=__file__, sim=sim)
