"""Tests of the reporter: order, tickets, and independence of the sources."""

import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import BEAT_BITS, Report
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS, start_clock
from weft.tb.sim.stream.stream import StreamSink, StreamSource

SOURCES, UNTICKETED = 4, 3
bench_test = cocotb.test(timeout_time=400, timeout_unit="us")


NAMED = 96      # low bits of an entry that identify it; the others are derived from them


def filled(named):
    """Return an entry all of whose bits are in use."""
    return named | random.Random(named).getrandbits(BEAT_BITS - NAMED) << NAMED


def report(source, number, ticket):
    """Return a report that contains its source, its number and its full ticket."""
    return Report.const({"entry": filled(source << 64 | number << 32 | ticket), "ticket": ticket & 0xFF}).as_bits()


def unpack(entry):
    """Return source, number and ticket of an entry after a check of its other bits."""
    named = entry & (1 << NAMED) - 1
    assert entry == filled(named), "bits were lost"
    return named >> 64, named >> 32 & 0xFFFFFFFF, named & 0xFFFFFFFF


async def setup(dut, rng, pause):
    dut.placed_ticket.value = 0xFF
    await start_clock(dut)
    dut.placed_ticket.value = 0xFF          # nothing is placed: the first ticket is 0
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    sources = [StreamSource(dut, f"i__{k}", dut.clk, pause=pause, rng=random.Random(rng.random()))
               for k in range(SOURCES)]
    return sources, StreamSink(dut, "o", dut.clk, pause=pause, rng=random.Random(rng.random()))


@bench_test
async def no_report_precedes_its_data(dut):
    rng = random.Random(bench_seed())
    sources, sink = await setup(dut, rng, 0.3)
    issued, placed, numbers = 0, -1, [0] * SOURCES
    tickets = [[] for _ in range(SOURCES)]
    got = [[] for _ in range(SOURCES)]
    held_back = closed = 0

    def oldest_unsent():
        """Return the oldest ticket that a source still offers; the placed ticket must not pass it."""
        return min((t[s.sent] for t, s in zip(tickets, sources, strict=True) if s.sent < len(t)), default=issued)

    for cycle in range(6000):
        holding = cycle % 1500 >= 1000      # long enough for source 0 to fill
        if rng.random() < 0.4 and issued - placed < 100:     # a packet is checked; some cause reports
            for k in range(SOURCES):
                if rng.random() < 0.3 and numbers[k] - sources[k].sent < 2:
                    sources[k].send_nowait(report(k, numbers[k], 0 if k == UNTICKETED else issued))
                    tickets[k].append(issued)
                    numbers[k] += 1
            issued += 1
        if not holding and rng.random() < 0.4 and placed < min(issued - 1, oldest_unsent() + 100):
            placed = min(issued - 1, placed + rng.randint(1, 3))
            dut.placed_ticket.value = placed & 0xFF
        if rng.random() < 0.005:
            sink.pause = rng.choice([0.0, 0.5, 0.97])
        await RisingEdge(dut.clk)
        held_back += sink.received < sum(s.sent for s in sources)
        closed += not int(dut.space.value)
        while (entry := sink.recv_nowait()) is not None:
            source, number, ticket = unpack(entry)
            assert number == len(got[source]), "out of order"
            assert source == UNTICKETED or ticket <= placed, "ahead of its data"
            got[source].append(number)
    sink.pause = 0.0
    while placed < issued - 1:
        placed = min(issued - 1, oldest_unsent() + 100)
        dut.placed_ticket.value = placed & 0xFF
        await RisingEdge(dut.clk)
    while sum(map(len, got)) < sum(numbers):
        source, number, _ = unpack(await sink.recv())
        assert number == len(got[source])
        got[source].append(number)
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    assert int(dut.idle.value)
    assert issued > 600 and held_back and closed and all(len(g) > 20 for g in got)


@bench_test
async def waiting_source_blocks_no_other(dut):
    rng = random.Random(bench_seed())
    sources, sink = await setup(dut, rng, 0.0)
    for k in range(20):
        sources[0].send_nowait(report(0, k, 5))
    for _ in range(40):
        await RisingEdge(dut.clk)
    assert not sink.received and not int(dut.space.value) and not int(dut.idle.value)
    dut.placed_ticket.value = 4
    for k in range(30):
        sources[1].send_nowait(report(1, k, 4))
        sources[3].send_nowait(report(3, k, 77))
    entries = [unpack(e) for e in await sink.recv_many(60)]
    assert {e[0] for e in entries} == {1, 3}
    dut.placed_ticket.value = 5
    assert [unpack(e)[1] for e in await sink.recv_many(20)] == list(range(20))
    assert not sink.received - 80


@bench_test
async def report_may_wait_while_tickets_wrap(dut):
    rng = random.Random(bench_seed())
    sources, sink = await setup(dut, rng, 0.0)
    sink.pause = 1.0                        # the ring is full
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    for k in range(SOURCES):
        sources[k].send_nowait(report(k, 0, 3))
        sources[k].send_nowait(report(k, 1, 3))
    for placed in range(3, 3 + 384):        # the ticket looks like a future one again
        dut.placed_ticket.value = placed & 0xFF
        await RisingEdge(dut.clk)
    sink.pause = 0.0
    entries = [unpack(e) for e in await sink.recv_many(2 * SOURCES)]
    assert sorted(entries) == [(k, n, 3) for k in range(SOURCES) for n in range(2)]


@bench_test
async def first_source_overtakes_the_others(dut):
    rng = random.Random(bench_seed())
    sources, sink = await setup(dut, rng, 0.0)
    sink.pause = 1.0                        # the ring is full
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    for number in range(3):
        for k in range(1, SOURCES):
            sources[k].send_nowait(report(k, number, 0))
    sources[0].send_nowait(report(0, 0, 0))
    for _ in range(20):
        await RisingEdge(dut.clk)
    dut.placed_ticket.value = 0
    for _ in range(4):
        await RisingEdge(dut.clk)
    sink.pause = 0.0
    order = [unpack(entry)[0] for entry in await sink.recv_many(3 * (SOURCES - 1) + 1)]
    # Only a report without a ticket can be in the output register already.
    assert 0 in order[:2]
    assert order[0] in (0, UNTICKETED)


@bench_test
async def reports_of_drops_are_marked(dut):
    """A report of kind ERROR, or PROBE with a reason, is marked once, when it is taken."""
    rng = random.Random(bench_seed())
    sources, sink = await setup(dut, rng, 0.4)
    dut.placed_ticket.value = 0
    kinds = [abi.ReportKind.ERROR, abi.ReportKind.PROBE, *abi.ReportKind]
    reports = [(rng.choice(kinds), rng.choice([abi.Reason.OK, *abi.Reason])) for _ in range(200)]
    for kind, reason in reports:
        entry = int.from_bytes(abi.REPORT_EVENT.pack(kind=kind, reason=reason, va=rng.getrandbits(64)), "little")
        sources[0].send_nowait(Report.const({"entry": entry, "ticket": 0}).as_bits())
    marked = []
    while len(marked) < len(reports):
        await RisingEdge(dut.clk)
        taken = int(dut.o__valid.value) and int(dut.o__ready.value)
        assert taken or not int(dut.drop_report.value)
        marked += [bool(int(dut.drop_report.value))] * taken
    assert marked == [kind is abi.ReportKind.ERROR or (kind is abi.ReportKind.PROBE and reason is not abi.Reason.OK)
                      for kind, reason in reports]
    assert set(marked) == {False, True} and len(await sink.recv_many(len(reports))) == len(reports)


@bench_test
async def one_report_per_cycle(dut):
    rng = random.Random(bench_seed())
    sources, sink = await setup(dut, rng, 0.0)
    dut.placed_ticket.value = 10
    await RisingEdge(dut.clk)
    start = get_sim_time("ns")
    for k in range(50):
        for s in range(SOURCES):
            sources[s].send_nowait(report(s, k, 7))
    await sink.recv_many(50 * SOURCES)
    cycles = (get_sim_time("ns") - start) // CLOCK_PERIOD_NS
    cocotb.log.info("%d reports in %d cycles", 50 * SOURCES, cycles)
    assert cycles <= 50 * SOURCES + 6


@pytest.mark.parametrize("sim", SIMULATORS)
def test_reports_follow_their_data(sim):
    from weft.hdl.report import Reporter
    reporter = Reporter(preset("test"), SOURCES, unticketed=[UNTICKETED])
    simulate(reporter, name="report", cases=__file__, sim=sim)
