"""Tests of the request shims, with and without straddle: reads and writes share RQ, whole and fairly."""

import random
from collections import Counter

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from weft.hdl.pcie.rq import RequestShim
from weft.hdl.pcie.rq_straddle import StraddledRequestShim
from weft.hdl.pcie.tlp import ReadTlp, WriteTlp
from weft.tb.sim.block.pcie.straddle import STRADDLE, environment
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import pack
from weft.tb.sim.stream.stream import StreamSource
from weft.tb.test.hdl.pcie.rq_packets import StraddledSink, WholeSink
from weft.tb.test.rounds import rounds


class Bench:
    def __init__(self, dut, pause=0.0, read_pause=0.0):
        self.dut, self.rng = dut, random.Random(bench_seed())
        dut.nonposted_credits.value = 15
        self.reads = StreamSource(dut, "i_read", dut.clk, read_pause, self.rng)
        self.writes = StreamSource(dut, "i_write", dut.clk, pause, self.rng)
        self.rq = (StraddledSink if STRADDLE else WholeSink)(dut, self.rng, pause)

    def read(self):
        fields = {"address": self.rng.getrandbits(62), "dwords": self.rng.randint(1, 1024),
                  "first_be": self.rng.getrandbits(4), "last_be": self.rng.getrandbits(4),
                  "tag": self.rng.getrandbits(8)}
        self.reads.send_nowait(pack(ReadTlp, **fields))
        return fields

    def write(self, dwords):
        payload = self.rng.randbytes(dwords * 4)
        fields = {"address": self.rng.getrandbits(62), "dwords": dwords, "first_be": self.rng.getrandbits(4),
                      "last_be": self.rng.getrandbits(4)}
        for at in range(0, len(payload), 64):
            part = payload[at:at + 64]
            garbage = self.rng.randbytes(64 - len(part))
            self.writes.send_nowait(pack(
                WriteTlp, data=int.from_bytes(part + garbage, "little"), first=int(at == 0),
                last=int(at + 64 >= len(payload)), **fields))
        return fields, [int.from_bytes(payload[k:k + 4], "little") for k in range(0, len(payload), 4)]

    async def packet(self):
        """Return the next :class:`~weft.tb.test.hdl.pcie.rq_packets.Request`."""
        return await with_timeout(self.rq.recv(), 20, "us")


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def mixed(dut):
    """Every length around the beat boundaries, mixed with reads, under back pressure; the writes come with gaps."""
    await start_clock(dut)
    bench, seen = Bench(dut, pause=0.3, read_pause=0.9), Counter()
    lengths = [*range(1, 50), 64, 127, 128, 129, 250, 1024]
    for _ in rounds(seen, ["alternate"], most=20):
        bench.rng.shuffle(lengths)
        writes = [bench.write(n) for n in lengths]
        reads = [bench.read() for _ in range(40)]
        order = []
        while writes or reads:
            packet = await bench.packet()
            if packet.kind == 0:
                wanted, body = reads.pop(0), []
                assert packet.tag == wanted["tag"]
            else:
                assert packet.kind == 1
                wanted, body = writes.pop(0)
            assert packet.payload == body
            assert (packet.address, packet.dwords) == (wanted["address"], wanted["dwords"])
            assert (packet.first_be, packet.last_be) == (wanted["first_be"], wanted["last_be"])
            order.append(packet.kind)
        seen["alternate"] += sum(a == c != b for a, b, c in zip(order, order[1:], order[2:], strict=False))


@cocotb.test(timeout_time=200, timeout_unit="us")
async def fair_and_full(dut):
    """When both wait, reads and writes alternate, and RQ is never idle.

    512 bytes and a read take ten beats, nine with straddle.
    """
    await start_clock(dut)
    bench = Bench(dut)
    for _ in range(30):
        bench.write(128)
    while not int(dut.m_axis_rq__tvalid.value):
        await RisingEdge(dut.clk)
    for _ in range(30):
        bench.read()
    cycles = beats = 1
    while beats < 30 * (9 if STRADDLE else 10):
        await RisingEdge(dut.clk)
        valid = int(dut.m_axis_rq__tvalid.value)
        beats += valid
        cycles += bool(beats)
    assert cycles == beats
    kinds = [(await bench.packet()).kind for _ in range(60)]
    assert all(a != b for a, b in zip(kinds, kinds[1:], strict=False))


@cocotb.test(timeout_time=200, timeout_unit="us")
async def largest(dut):
    """A write of 4 KiB whose beats come with gaps leaves as one packet."""
    await start_clock(dut)
    bench = Bench(dut, pause=0.8)
    for _ in range(3):
        wanted, body = bench.write(1024)
        packet = await bench.packet()
        assert (packet.dwords, packet.payload) == (wanted["dwords"], body)


@cocotb.test(timeout_time=200, timeout_unit="us")
async def no_credits(dut):
    """Without credits for reads, writes pass; reads continue with new credits."""
    await start_clock(dut)
    bench = Bench(dut)
    dut.nonposted_credits.value = 0
    for some in (2, 4, 8):
        bench.read()
        await ClockCycles(dut.clk, 20)
        assert bench.rq.empty()
        dut.nonposted_credits.value = some
        await bench.packet()
        dut.nonposted_credits.value = 0
    reads = [bench.read() for _ in range(5)]
    for _ in range(5):
        bench.write(40)
    kinds = [(await bench.packet()).kind for _ in range(5)]
    await ClockCycles(dut.clk, 20)
    assert bench.rq.empty()
    dut.nonposted_credits.value = 1
    kinds += [(await bench.packet()).kind for _ in reads]
    assert kinds == [1] * 5 + [0] * 5


@cocotb.test(timeout_time=200, timeout_unit="us")
async def writes_outstanding(dut):
    """A write is outstanding until its sequence number returns, whatever numbers of reads return.

    Two numbers may return in a cycle. When the function is gone, no write is outstanding.
    """
    await start_clock(dut)
    bench, waiting = Bench(dut), []

    async def numbers(count):
        waiting.extend([(await bench.packet()).sequence for _ in range(count)])

    async def put(*two):
        for k, number in enumerate(two):
            getattr(dut, f"sequence__{k}").value = number
        dut.sequence_valid.value = (1 << len(two)) - 1
        await RisingEdge(dut.clk)
        dut.sequence_valid.value = 0
        await ClockCycles(dut.clk, 2)

    for _ in range(3):
        bench.write(20)
        bench.read()
    await numbers(6)
    read, write = min(waiting), max(waiting)
    assert waiting.count(write) == waiting.count(read) == 3 and read != write
    await ClockCycles(dut.clk, 5)
    for two in ((read, read), (read, write), (read,), (write,)):
        await put(*two)
        assert int(dut.busy.value), two
    await put(write, read)
    assert not int(dut.busy.value)
    for _ in range(2):
        bench.write(20)
    await numbers(2)
    await put(write, write)
    assert not int(dut.busy.value)
    bench.write(20)
    await numbers(1)
    await ClockCycles(dut.clk, 100)
    assert int(dut.busy.value)
    dut.gone.value = 1
    await ClockCycles(dut.clk, 2)
    assert not int(dut.busy.value)


@cocotb.test(timeout_time=1, timeout_unit="ms", skip=not STRADDLE)
async def halves(dut):
    """A packet of n double words takes ceil(n / 8) half beats, and RQ is never idle.

    The exception are writes that arrive in more beats than that. Reads and short writes may take a few beats more, when
    there is no packet for the other half.
    """
    await start_clock(dut)
    bench = Bench(dut)
    for lengths, reads, more in (([128], 0, 0.01), ([32], 0, 0.01), ([64, 36, 3], 0, 0.01), ([128], 160, 0.01),
                                 ([4], 160, 0.01), ([1, 12, 20], 240, 0.06)):
        writes = [lengths[k % len(lengths)] for k in range(240)]
        for n in writes:
            bench.write(n)
        for _ in range(reads):
            bench.read()
        while not int(dut.m_axis_rq__tvalid.value):
            await RisingEdge(dut.clk)
        first = bench.rq.beats + bench.rq.idle
        packets = [await bench.packet() for _ in range(len(writes) + reads)]
        assert sum(packet.kind for packet in packets) == len(writes)
        least = max((sum(-(-(n + 4) // 8) for n in writes) + reads) / 2, sum(-(-n // 16) for n in writes))
        spent = bench.rq.beats + bench.rq.idle - first
        dut._log.info("writes of %s double words, %d reads: %d beats, %.1f at least", lengths, reads, spent, least)
        assert spent <= (1 + more) * least + 8, (lengths, reads)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_reads_and_writes_share_the_link(sim):
    simulate(RequestShim(), name="pcie_rq", cases=__file__, sim=sim)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_reads_and_writes_share_beats(sim):
    simulate(StraddledRequestShim(), name="pcie_rq_straddle", cases=__file__, sim=sim, env=environment())
