"""Tests of the ring reader with a host that answers line reads late and out of order."""

import os
import random
from collections import Counter, deque

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from weft.hdl.contract import abi
from weft.hdl.part.layouts import LineData, LineRequest, PushedDescriptor
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS, start_clock
from weft.tb.sim.stream.stream import StreamSink
from weft.tb.test.rounds import rounds

BASE = 0x1_2345_6FC0  # one line before a 4 KiB boundary
PREFETCH = 16
CLEARED_CYCLES = PREFETCH + 4       # from a reset until the ring runs
PUSHED_CYCLES = 6      # from a pushed descriptor to its delivery
PUSHED_TO_DOORBELL = 4      # least cycles between them, because of their paths
LINE_BITS = LineData.as_shape().size


class Host:
    """Ring memory, doorbells, and a line-read service with random latency."""

    def __init__(self, dut, rng, *, log2, pause=0.3, latency=(1, 40)):
        self.dut, self.rng, self.log2, self.pause, self.latency = dut, rng, log2, pause, latency
        self.size = 1 << log2
        self.lines = {}                 # line address -> 64 bytes as an integer
        self.prod = self.rung = 0       # written, and rung; free running, never masked
        self.errors = set()             # ring indices whose read fails
        self.cut_short = 0.0            # chance that a line ends its request; later lines then fail, too
        self.seen = Counter()           # requests by their lines, and events between them
        self.in_flight = self.requests = 0
        self.pushed = set()             # ring indices of descriptors that were pushed whole
        self._fetched = 0

    def post(self, *, bad_phase=False, damaged=False):
        """Write one random descriptor into the ring; return it."""
        lap = self.prod >> self.log2
        phase = (lap & 1) ^ 1 ^ bad_phase
        data = (self.rng.getrandbits(495) << 1 | phase).to_bytes(abi.BLOCK_BYTES, "little")
        entry = int.from_bytes(abi.sealed(data), "little") ^ damaged << self.rng.randrange(1, 512)
        self.lines[(BASE >> 6) + self.prod % self.size] = entry
        self.prod += 1
        return entry

    async def doorbell(self, value=None):
        if value is None:
            value = self.rung = self.prod
        self.dut.prod.value = value & (2 * self.size - 1)
        self.dut.prod_stb.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.prod_stb.value = 0

    async def push(self, index, *, whole=True, data=None, at_once=False):
        """Push the descriptor at a ring index, or random data if not ``whole``."""
        if whole:
            self.pushed.add(index)
        self.rung = index + 1
        entry = self.lines[(BASE >> 6) + index % self.size] if whole else self.rng.getrandbits(512)
        self.dut.i_push__payload.value = PushedDescriptor.const({
            "data": entry if data is None else data, "window": index % (2 * self.size) % abi.PUSH_WINDOWS,
            "whole": whole}).as_bits()
        self.dut.i_push__valid.value = 1
        await RisingEdge(self.dut.clk)
        while not int(self.dut.i_push__ready.value):
            await RisingEdge(self.dut.clk)
        self.dut.i_push__valid.value = 0
        for _ in range(0 if at_once else PUSHED_TO_DOORBELL):
            await RisingEdge(self.dut.clk)

    async def configure(self):
        self.dut.base.value, self.dut.log2.value = BASE, self.log2
        await RisingEdge(self.dut.clk)
        self.dut.enable.value = 1
        await RisingEdge(self.dut.clk)

    async def serve(self):
        """Answer requests: lines of one request in order, requests in any order."""
        waiting = []                    # [due cycle, order, deque of (data, tag, index, last, error)]
        cycle = order = 0
        dut = self.dut
        ready = False
        while True:
            dut.o_request__ready.value = int(ready)
            await RisingEdge(dut.clk)
            cycle += 1
            if int(dut.o_request__valid.value) and ready:
                waiting.append(self._accept(LineRequest.from_bits(int(dut.o_request__payload.value)), cycle, order))
                order += 1
            ready = self.rng.random() >= self.pause
            due = [w for w in waiting if w[0] <= cycle]
            dut.i_line__valid.value = 0
            if self.rng.random() < 0.2:         # a change costs Icarus a checksum
                dut.i_line__payload.value = self.rng.getrandbits(LINE_BITS)     # random
            if due and self.rng.random() >= self.pause:
                chosen = self.rng.choice(due)
                self.seen["overtaken"] += chosen[1] > min(w[1] for w in waiting)
                data, tag, index, last, error = chosen[2].popleft()
                dut.i_line__valid.value = 1
                dut.i_line__payload.value = LineData.const(
                    {"data": data, "tag": tag, "index": index, "last": last, "error": error}).as_bits()
                if last:
                    waiting.remove(chosen)
                    self.in_flight -= 1

    def _accept(self, request, cycle, order):
        line, count, tag = request.line, request.count, request.tag
        self.seen[count] += 1
        self.requests += 1
        assert 1 <= count <= 4
        assert (line & 63) + count <= 64, "crosses a 4 KiB page"
        first = line - (BASE >> 6)
        assert 0 <= first and first + count <= self.size, "outside the ring"
        finished = self.prod - ((self.prod - cons(self.dut)) & 2 * self.size - 1)
        while self._fetched < finished or self._fetched % self.size != first:
            assert self._fetched in self.pushed, "not the next descriptors"
            self._fetched += 1
            self.seen["placed"] += 1
        self.seen["read though pushed"] += self._fetched in self.pushed
        assert self._fetched + count <= self.prod, "past prod"
        lines = deque()
        for k in range(count):
            index = self._fetched + k
            failed, last = index in self.errors, k == count - 1 or self.rng.random() < self.cut_short
            lines.append((0 if failed else self.lines[line + k], tag, k, last, failed))
            if last:
                self.errors.update(range(index + 1, self._fetched + count))
                break
        self._fetched += count
        self.in_flight += 1
        self.seen["two in flight"] += self.in_flight > 1
        return [cycle + self.rng.randint(*self.latency), order, lines]

    def restart(self):
        self.prod = self.rung = self._fetched = 0
        self.pushed.clear()


async def retire_some(dut, rng, sink, got, retired, pause):
    """Retire delivered descriptors, one strobe each, in random cycles."""
    while True:
        while (item := sink.recv_nowait()) is not None:
            got.append(item)
        go = retired[0] < len(got) and rng.random() >= pause
        dut.retire.value = int(go)
        retired[0] += go
        await RisingEdge(dut.clk)


async def watch_refusals(dut, refused):
    while True:
        await RisingEdge(dut.clk)
        if int(dut.drop__stb.value):
            refused.append(abi.Reason(int(dut.drop__reason.value)))


async def setup(dut, rng, **options):
    await start_clock(dut)
    host = Host(dut, rng, **options)
    got, retired, refused = [], [0], []
    sink = StreamSink(dut, "o", dut.clk, pause=options.get("pause", 0.3), rng=random.Random(rng.random()))
    cocotb.start_soon(host.serve())
    cocotb.start_soon(retire_some(dut, rng, sink, got, retired, options.get("pause", 0.3)))
    cocotb.start_soon(watch_refusals(dut, refused))
    await host.configure()
    for _ in range(CLEARED_CYCLES):
        await RisingEdge(dut.clk)
    return host, got, refused


async def until(dut, condition, cycles=20000):
    for _ in range(cycles):
        if condition():
            return
        await RisingEdge(dut.clk)
    raise AssertionError("it never happened")


def cons(dut):
    return int(dut.cons.value)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def in_order_over_many_laps(dut):
    await in_order(dut, log2=5, wanted=("two in flight", "overtaken", 1, 2, 3, 4, "placed", "read though pushed"))


@cocotb.test(timeout_time=200, timeout_unit="us")
async def ring_smaller_than_the_buffer(dut):
    await in_order(dut, log2=2)


async def in_order(dut, *, log2, wanted=()):
    rng = random.Random(bench_seed())
    host, got, refused = await setup(dut, rng, log2=log2)
    mask = 2 * host.size - 1
    sent = []
    for laps in rounds(host.seen, wanted, least=7, most=70):
        while len(sent) < (laps + 1) * host.size + 3:
            free = host.size - ((host.prod - cons(dut)) & mask)
            for _ in range(rng.randint(0, free)):
                sent.append(host.post())
            if rng.random() < 0.5:
                await host.doorbell()
                if rng.random() < 0.5:
                    await until(dut, lambda: cons(dut) == host.prod & mask)
            for _ in range(rng.randint(1, 3)):
                if (host.prod - cons(dut)) & mask < host.size and host.rung == host.prod:
                    sent.append(host.post())
                    index, whole = host.prod - 1, rng.random() < 0.8
                    for _ in range(1 if whole else rng.randint(1, 8)):      # in pieces, each with the same index
                        await host.push(index, whole=whole)
            await host.doorbell()
            for _ in range(rng.randint(0, 30)):
                await RisingEdge(dut.clk)
    await until(dut, lambda: len(got) == len(sent) and cons(dut) == host.prod & mask)
    assert got == sent and refused == []


@cocotb.test(timeout_time=200, timeout_unit="us")
async def bad_descriptors_are_rejected_and_skipped(dut):
    rng = random.Random(bench_seed())
    host, got, refused = await setup(dut, rng, log2=5)
    mask, sent, bad_phase, damaged, failed = 2 * host.size - 1, {}, set(), set(), set()
    host.cut_short = 0.25
    rounds = int(os.environ["WEFT_ROUNDS"])
    while rounds > 0 or not len(host.errors) > len(failed) > 0 < len(damaged - bad_phase - host.errors):
        rounds -= 1
        for _ in range(rng.randint(1, host.size)):
            index, kind = host.prod, rng.random()
            if kind < 0.1:
                host.errors.add(index)
                failed.add(index)
            elif kind < 0.2:
                bad_phase.add(index)
            elif kind < 0.3:
                damaged.add(index)
            sent[index] = host.post(bad_phase=0.1 <= kind < 0.2, damaged=0.2 <= kind < 0.3)
        await host.doorbell()
        await until(dut, lambda: cons(dut) == host.prod & mask)
        await RisingEdge(dut.clk)
    assert got == [entry for index, entry in sent.items() if index not in host.errors | bad_phase | damaged]
    assert refused.count(abi.Reason.DMA_ERROR) == len(host.errors) > len(failed) > 0
    assert refused.count(abi.Reason.BAD_DESCRIPTOR) == len((bad_phase | damaged) - host.errors) > 0


@cocotb.test(timeout_time=200, timeout_unit="us")
async def inconsistent_doorbell_is_ignored(dut):
    rng = random.Random(bench_seed())
    host, got, refused = await setup(dut, rng, log2=3)
    sent = [host.post() for _ in range(5)]
    await host.doorbell(9)                          # more than the ring holds
    await host.doorbell()
    await until(dut, lambda: cons(dut) == 5)
    await host.doorbell(4)                          # backwards
    await host.doorbell(14)                         # 5 + 9
    await until(dut, lambda: len(refused) == 3)
    assert refused == [abi.Reason.BAD_DESCRIPTOR] * 3
    sent += [host.post() for _ in range(8)]
    await host.doorbell()
    await until(dut, lambda: cons(dut) == 13)
    assert got == sent and len(refused) == 3


@cocotb.test(timeout_time=200, timeout_unit="us")
async def pushed_descriptor_is_not_read(dut):
    """Into an empty ring, as often as it becomes empty; corrupted descriptors are skipped."""
    rng = random.Random(bench_seed())
    host, got, refused = await setup(dut, rng, log2=3, pause=0.0)
    sent = []
    for lap in range(3 * host.size):
        entry, damaged = host.post(), lap % 5 == 4
        await host.push(host.prod - 1, at_once=True,
                        data=entry ^ 1 << rng.randrange(1, 512) if damaged else None)
        sent += [] if damaged else [entry]
        begin = get_sim_time("ns")
        if not damaged:
            await until(dut, lambda: int(dut.o__valid.value))
            assert (get_sim_time("ns") - begin) // CLOCK_PERIOD_NS == PUSHED_CYCLES
        await until(dut, lambda: cons(dut) == host.prod & 2 * host.size - 1)
    assert got == sent and not host.requests
    assert refused == [abi.Reason.BAD_DESCRIPTOR] * (3 * host.size // 5)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def inconsistent_push_is_rejected(dut):
    rng = random.Random(bench_seed())
    host, got, refused = await setup(dut, rng, log2=3, pause=0.0)
    await until(dut, lambda: int(dut.idle.value))
    sent = [host.post() for _ in range(3)]
    await host.doorbell()
    await until(dut, lambda: cons(dut) == 3)
    for other in (2, 4, 8, 14):                     # 2 is the newest; the others are not the next one
        host.lines[(BASE >> 6) + other % 8] = 0
        await host.push(other)
    await until(dut, lambda: len(refused) == 3)
    dut.enable.value = 0
    for _ in range(8):
        await RisingEdge(dut.clk)
    await host.push(0)
    await until(dut, lambda: len(refused) == 4)
    assert refused == [abi.Reason.BAD_DESCRIPTOR] * 4 and got == sent


@cocotb.test(timeout_time=200, timeout_unit="us")
async def restart_discards_reads_in_flight(dut):
    rng = random.Random(bench_seed())
    host, got, refused = await setup(dut, rng, log2=6, latency=(60, 120))
    stale = 0
    restarts = int(os.environ["WEFT_RESTARTS"])
    while restarts > 0 or stale <= 3:
        restarts -= 1
        for _ in range(rng.randint(10, host.size // 2)):
            host.post()
        await host.doorbell()
        for _ in range(rng.randint(20, 150)):
            await RisingEdge(dut.clk)
        dut.enable.value = 0
        for _ in range(3):
            await RisingEdge(dut.clk)
        await until(dut, lambda: not int(dut.o_request__valid.value))
        await RisingEdge(dut.clk)
        stale += host.in_flight > 0
        delivered = len(got)
        host.restart()
        entries = [host.post() for _ in range(rng.randint(1, 12))]
        dut.enable.value = 1
        await RisingEdge(dut.clk)
        await host.doorbell()                       # mostly while old reads are still in flight
        await until(dut, lambda e=entries: cons(dut) == len(e) and got[-len(e):] == e)
        assert len(got) <= delivered + 1 + len(entries)
    assert refused == [] and stale > 3


@cocotb.test(timeout_time=200, timeout_unit="us")
async def one_descriptor_per_cycle_from_the_buffer(dut):
    rng = random.Random(bench_seed())
    host, got, _ = await setup(dut, rng, log2=7, pause=0.0, latency=(1, 1))
    sent = [host.post() for _ in range(host.size)]
    await host.doorbell()
    start = get_sim_time("ns")
    await until(dut, lambda: len(got) == len(sent))
    cycles = (get_sim_time("ns") - start) // CLOCK_PERIOD_NS
    cocotb.log.info("128 descriptors in %d cycles", cycles)
    assert got == sent
    assert cycles <= 128 + 40, cycles


@pytest.mark.parametrize("sim", SIMULATORS)
def test_descriptors_are_delivered_in_order(sim):
    from weft.hdl.ring.reader import RingReader

    quick = sim == "icarus"
    simulate(RingReader(PREFETCH, pushed=True), name="ring_reader", cases=__file__, sim=sim,
             env={"WEFT_ROUNDS": "25" if quick else "40", "WEFT_RESTARTS": "6" if quick else "10"})
