"""Tests of completions with straddle: results equal those without straddle, in any arrangement; throughput."""

import itertools
import random
from collections import Counter

import cocotb
import pytest
from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl.pcie.rc_straddle import StraddledCompletionShim
from weft.hdl.pcie.tlp import LANES, CompletionBeat
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import unpack
from weft.tb.test.hdl.pcie.rc_packets import CODES, DISCONTINUE, HEADER_DWORDS, NORMAL, STATUSES, any_packet
from weft.tb.test.rounds import rounds

# PG213, sideband of RC at 512 bits, with straddle: lowest bits of the fields.
SOP, SOP_LANE, EOP, EOP_LANE = 64, 68, 76, 80
SLOTS, SLOT_DWORDS = 4, 4
MEANINGLESS = (1 << SOP) - 1 | (1 << 161) - (1 << 97)      # byte enables and parity: must be ignored


class Beat:
    """A beat of RC under construction; bits without meaning are random."""

    def __init__(self, rng):
        self.words = [rng.getrandbits(32) for _ in range(LANES)]
        self.user, self.used, self.begun, self.ended = rng.getrandbits(161) & MEANINGLESS, 0, 0, []
        for k in range(SLOTS):      # pointers of slots in which nothing begins or ends
            self.user |= rng.getrandbits(2) << SOP_LANE + 2 * k | rng.getrandbits(4) << EOP_LANE + 4 * k

    def _point(self, at, width, to):
        self.user = self.user & ~((1 << width) - 1 << at) | to << at

    def begin(self):
        """Begin a completion in the next slot."""
        self._point(SOP_LANE + 2 * self.begun, 2, self.used)
        self.user |= 1 << SOP + self.begun
        self.begun += 1

    def put(self, words):
        """Add up to a slot of double words."""
        self.words[SLOT_DWORDS * self.used:SLOT_DWORDS * self.used + len(words)] = words
        self.used += 1

    def end(self, packet, dwords):
        """End a packet in the slot added last, which holds ``dwords`` of its double words."""
        number = len(self.ended)
        self._point(EOP_LANE + 4 * number, 4, SLOT_DWORDS * (self.used - 1) + dwords - 1)
        self.user |= 1 << EOP + number
        self.ended.append(packet)

    def drive(self, dut):
        dut.s_axis_rc__tdata.value = sum(word << 32 * k for k, word in enumerate(self.words))
        dut.s_axis_rc__tuser.value = self.user


def straddle(packets, rng, gap=0.0, place=0):
    """Return beats with consecutive packets, the first in slot ``place``.

    ``gap`` is the chance of an empty slot between two packets.
    """
    beats, beat = [], Beat(rng)
    beat.used = place

    def full():
        nonlocal beat
        if beat.used == SLOTS:
            beats.append(beat)
            beat = Beat(rng)

    for packet in packets:
        while rng.random() < gap:
            beat.used += 1
            full()
        beat.begin()
        words = packet.words(rng)
        for at in range(0, len(words), SLOT_DWORDS):
            full()
            here = words[at:at + SLOT_DWORDS]
            beat.put(here)
            if at + SLOT_DWORDS >= len(words):
                beat.end(packet, len(here))
        full()
    if beat.used:
        beats.append(beat)
    for beat in beats:      # random while nothing ends
        if any(packet.discontinued for packet in beat.ended) if beat.ended else rng.getrandbits(1):
            beat.user |= DISCONTINUE
    return beats


class Bench:
    def __init__(self, dut):
        self.dut, self.rng = dut, random.Random(bench_seed())
        self.cycle, self.stalls, self.got = 0, 0, []

    async def pass_cycle(self, beat=None):
        """Pass one cycle, with or without a beat; return True if it was taken."""
        dut, rng = self.dut, self.rng
        dut.s_axis_rc__tvalid.value = int(beat is not None)
        dut.s_axis_rc__tkeep.value, dut.s_axis_rc__tlast.value = rng.getrandbits(LANES), rng.getrandbits(1)
        (beat or Beat(rng)).drive(dut)
        dut.o__ready.value = rng.getrandbits(1)     # must be ignored
        await ReadOnly()
        if int(dut.o__valid.value):
            self.got.append((self.cycle, unpack(CompletionBeat, int(dut.o__payload.value))))
        taken = bool(int(dut.s_axis_rc__tready.value))
        await RisingEdge(dut.clk)
        self.cycle += 1
        self.stalls += beat is not None and not taken
        return taken

    async def send(self, beats, idle=0.0):
        for beat in beats:
            while self.rng.random() < idle:
                await self.pass_cycle()
            while not await self.pass_cycle(beat):
                pass

    async def exchange(self, packets, *, gap=0.0, idle=0.0):
        """Send packets and compare the output; return the cycles of the first and the last beat."""
        beats, begun = straddle(packets, self.rng, gap), len(self.got)
        await self.send(beats, idle)
        wanted = [max(-(-len(packet.payload) // LANES), 1) for packet in packets]
        due = sum(count for packet, count in zip(packets, wanted, strict=True) if not packet.stray)
        deadline = self.cycle + 2 * sum(wanted) + 10
        while len(self.got) - begun < due and self.cycle < deadline:
            await self.pass_cycle()
        for _ in range(10):
            await self.pass_cycle()
        got = iter(self.got[begun:])
        discontinued = {id(packet): bool(beat.user & DISCONTINUE) for beat in beats for packet in beat.ended}
        for packet, count in zip(packets, wanted, strict=True):
            if not packet.stray:
                packet.check([beat for _, beat in itertools.islice(got, count)], discontinued[id(packet)])
        assert next(got, None) is None, "a beat of nothing"
        return self.got[begun][0], self.got[-1][0]

    def packet(self, dwords, **fields):
        return any_packet(self.rng, payload=tuple(self.rng.getrandbits(32) for _ in range(dwords)), **fields)


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def every_place(dut):
    """Completions of every length after others of every length, so that each begins in every slot; one fills a page.

    Without gaps, with gaps in the beats, and with idle cycles.
    """
    await start_clock(dut)
    bench = Bench(dut)
    lengths = [*range(1, 40), *range(60, 70)]
    for gap, idle in ((0, 0), (0.3, 0), (0, 0.4), (0.3, 0.4)):
        packets = [bench.packet(n) for first in range(1, 9) for second in lengths for n in (first, second)]
        packets.append(bench.packet(1024, address=0))
        await bench.exchange(packets, gap=gap, idle=idle)


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def errors_mix(dut):
    """Every combination of two errors, short and long, among valid completions in the same beats."""
    await start_clock(dut)
    bench, rng, seen = Bench(dut), random.Random(bench_seed()), Counter()
    wanted = [(stray, bad, ends, long) for stray in (False, True) for bad in (False, True) for ends in (False, True)
              for long in (False, True) if bad or not stray]
    wanted += [("discontinued", neighbours) for neighbours in (0, 1, 2, 3)] + [("no payload", n) for n in (1, 2, 3, 4)]
    for _ in rounds(seen, wanted, most=200):
        packets = []
        for _ in range(100):
            code = rng.choice([NORMAL, NORMAL, NORMAL, *CODES])
            dwords = rng.choice([1, 1, 5, 16, rng.randint(1, 60)]) if code == NORMAL else rng.choice([0, 0, 1, 16, 40])
            packets.append(bench.packet(dwords, code=code, poisoned=int(rng.random() < 0.1),
                                        status=rng.choice([0, 0, 0, *STATUSES.values()]),
                                        discontinued=int(rng.random() < 0.05)))
            packet = packets[-1]
            seen[packet.stray, packet.bad, packet.ends, dwords > 13] += 1
        for beat in straddle(packets, random.Random(0)):
            seen["discontinued", len(beat.ended) - 1] += any(packet.discontinued for packet in beat.ended)
            seen["no payload", sum(not packet.payload for packet in beat.ended)] += 1
        await bench.exchange(packets, gap=rng.choice([0, 0.2]), idle=rng.choice([0, 0.2]))


async def rate(bench, packets):
    """Return the cycles from the first beat out to the last, and those in which RC was stalled."""
    bench.stalls = 0
    first, last = await bench.exchange(packets)
    return last - first + 1, bench.stalls


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def throughput(dut):
    """Completions that average one beat or more never stall RC.

    Completions of 64 bytes leave as fast as the beats can hold them, 4 in 5 cycles; smaller ones leave one per cycle.
    """
    await start_clock(dut)
    bench = Bench(dut)
    for dwords in (13, 16, 17, 31, 32, 64, 256):
        beats, slots = -(-dwords // LANES), -(-(HEADER_DWORDS + dwords) // SLOT_DWORDS)
        cycles, stalls = await rate(bench, [bench.packet(dwords) for _ in range(400)])
        fewest = max(400 * slots / SLOTS, 400 * beats)
        bench.dut._log.info("%d double words: %d completions in %d cycles", dwords, 400, cycles)
        assert cycles <= fewest + 2, f"completions of {dwords} double words take {cycles} cycles, not {fewest}"
        assert not stalls or 400 * beats > 400 * slots / SLOTS, f"{dwords} double words: RC was stalled {stalls} cycles"
    for dwords in (1, 5, 9):
        cycles, _ = await rate(bench, [bench.packet(dwords) for _ in range(400)])
        assert cycles == 400, f"completions of {dwords} double words take {cycles} cycles"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def latency(dut):
    """Three cycles from the beat with the end; two if the completion began in an earlier beat."""
    await start_clock(dut)
    bench = Bench(dut)
    for dwords, place in itertools.product((1, 13, 14, 16), range(SLOTS)):
        packet, before = bench.packet(dwords), len(bench.got)
        beats = straddle([packet], bench.rng, place=place)
        await bench.send(beats)
        sent = bench.cycle - 1
        for _ in range(6):
            await bench.pass_cycle()
        (cycle, beat), = bench.got[before:]
        assert cycle - sent == (3 if len(beats) == 1 else 2), (dwords, place)
        packet.check([beat], 0)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_straddled_completions_are_separated(sim):
    simulate(StraddledCompletionShim(), name="pcie_rc_straddle", cases=__file__, sim=sim)
