"""Completion shim: where each double word belongs, what ends a request, and every way a completion can be bad."""

import random
from collections import Counter
from dataclasses import dataclass

import cocotb
import pytest
from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl.pcie.rc import CompletionShim
from weft.hdl.pcie.tlp import CompletionBeat
from weft.tb.flow.clock import start_clock
from weft.tb.flow.payload import unpack
from weft.tb.flow.simulate import SIMULATORS, bench_seed, simulate

# UltraScale+ PCIe integrated block (PG213): the RC descriptor and its user field, as bits of the interface.
NORMAL, POISONED, BAD_STATUS, NO_DATA, MISMATCH, BAD_ADDRESS, INVALID_TAG = range(7)
FUNCTION_RESET, TIMEOUT = 8, 9
CODES = (NORMAL, POISONED, BAD_STATUS, NO_DATA, MISMATCH, BAD_ADDRESS, INVALID_TAG, FUNCTION_RESET, TIMEOUT)
TERMINATING = (BAD_STATUS, NO_DATA, FUNCTION_RESET, TIMEOUT)    # whatever the completed bit says
STATUSES = {"UR": 1, "CRS": 2, "CA": 4}
DISCONTINUE = 1 << 96
HEADER_DWORDS, LANES, PAGE_DWORDS = 3, 16, 1024


@dataclass
class Completion:
    """A packet of the RC interface."""

    address: int        # of the first double word, divided by 4
    payload: tuple      # double words
    tag: int
    code: int = NORMAL
    status: int = 0
    poisoned: int = 0
    completed: int = 1
    discontinued: int = 0

    def beats(self, rng):
        """``(data, keep, last, user)`` of each beat; what has no meaning is random."""
        head = (self.address << 2 & 0xFFF | self.code << 12 | rng.getrandbits(13) << 16 | rng.getrandbits(1) << 29
                | self.completed << 30 | len(self.payload) << 32 | self.status << 43 | self.poisoned << 46
                | rng.getrandbits(16) << 48 | self.tag << 64 | rng.getrandbits(16) << 72 | rng.getrandbits(6) << 89)
        words = [head >> 32 * k & 0xFFFF_FFFF for k in range(HEADER_DWORDS)] + list(self.payload)
        for first in range(0, len(words), LANES):
            here = words[first:first + LANES]
            last = first + LANES >= len(words)
            # The hard block says in the last beat whether it gave the packet up; before, the bit says nothing.
            user = rng.getrandbits(161) & ~DISCONTINUE | DISCONTINUE * (self.discontinued if last else
                                                                       rng.getrandbits(1))
            unused = rng.getrandbits(32 * (LANES - len(here)))
            data = sum(word << 32 * k for k, word in enumerate(here)) | unused << 32 * len(here)
            yield data, (1 << len(here)) - 1, int(last), user

    @property
    def stray(self):
        """It belongs to no request of ours."""
        return self.code == INVALID_TAG

    @property
    def bad(self):
        return bool(self.code != NORMAL or self.status or self.poisoned)

    @property
    def ends(self):
        return bool(self.completed or self.code in TERMINATING)


class Bench:
    """Packets in, with gaps inside; every beat that comes out, with its cycle."""

    def __init__(self, dut, gaps=0.3):
        self.dut, self.rng, self.gaps = dut, random.Random(bench_seed()), gaps
        self.cycle, self.sent, self.got = 0, [], []

    async def pass_cycle(self, beat=None):
        """One cycle, with a beat or without."""
        dut, rng = self.dut, self.rng
        data, keep, last, user = beat or (rng.getrandbits(512), rng.getrandbits(16), rng.getrandbits(1),
                                          rng.getrandbits(161))
        dut.s_axis_rc__tvalid.value = int(beat is not None)
        dut.s_axis_rc__tdata.value, dut.s_axis_rc__tkeep.value = data, keep
        dut.s_axis_rc__tlast.value, dut.s_axis_rc__tuser.value = last, user
        dut.o__ready.value = rng.getrandbits(1)     # nobody looks at it
        await ReadOnly()
        assert int(dut.s_axis_rc__tready.value), "the link was stalled"
        if int(dut.o__valid.value):
            self.got.append((self.cycle, unpack(CompletionBeat, int(dut.o__payload.value))))
        await RisingEdge(dut.clk)
        self.cycle += 1

    async def send(self, packet):
        """Send a packet; the cycles of its beats."""
        cycles = []
        for beat in packet.beats(self.rng):
            while self.rng.random() < self.gaps:
                await self.pass_cycle()
            cycles.append(self.cycle)
            await self.pass_cycle(beat)
        self.sent.append((packet, cycles))

    def any_packet(self, **fields):
        """A sound packet of any length, but for ``fields``."""
        rng = self.rng
        dwords = rng.choice([1, 12, 13, 14, 28, 29, 30, 45, rng.randint(1, 60)])
        fields = {"completed": rng.getrandbits(1), "tag": rng.getrandbits(8),
                  "payload": tuple(rng.getrandbits(32) for _ in range(dwords)), **fields}
        fields.setdefault("address", rng.randint(0, PAGE_DWORDS - len(fields["payload"])))    # none crosses a page
        return Completion(**fields)

    async def check(self):
        """Hold all that came out against all that went in: one beat for each, one cycle later."""
        await self.pass_cycle()
        await self.pass_cycle()
        got = iter(self.got)
        for packet, cycles in self.sent:
            if packet.stray:
                continue
            memory, given_up = {}, packet.bad or packet.discontinued
            for place, cycle in enumerate(cycles):
                last = place == len(cycles) - 1
                at, beat = next(got)
                assert at == cycle + 1, f"{packet}: a beat of cycle {cycle} came out in {at}"
                assert beat.tag == packet.tag, packet
                assert beat.last == last and beat.done == (last and packet.ends), packet
                assert beat.error == (packet.bad or last and packet.discontinued), packet
                for lane in range(LANES):
                    if beat.lanes >> lane & 1:
                        word = (beat.dword + lane) % PAGE_DWORDS
                        assert word not in memory, f"{packet}: double word {word} twice"
                        memory[word] = beat.data >> 32 * lane & 0xFFFF_FFFF
            wanted = {packet.address + k: word for k, word in enumerate(packet.payload)}
            assert not (packet.bad and memory) and memory.items() <= wanted.items(), packet
            assert memory == wanted or given_up, f"{packet}: double words are missing"
        assert next(got, None) is None, "a beat of nothing"


@cocotb.test()
async def double_words_are_placed(dut):
    """Completions of every length, to the last double word of a page, at full rate and with gaps."""
    await start_clock(dut)
    for gaps in (0.0, 0.4):
        bench = Bench(dut, gaps)
        for dwords in range(1, 62):
            payload = tuple(bench.rng.getrandbits(32) for _ in range(dwords))
            address = bench.rng.choice([0, PAGE_DWORDS - dwords, bench.rng.randint(0, PAGE_DWORDS - dwords)])
            await bench.send(bench.any_packet(address=address, payload=payload))
        await bench.send(bench.any_packet(address=0, payload=tuple(range(PAGE_DWORDS))))
        await bench.check()
        assert {packet.completed for packet, _ in bench.sent} == {0, 1}


@cocotb.test()
async def every_error_is_told(dut):
    """Each error code, status, poison and discontinuation alone, with and without the completed bit, in one beat and
    in several; a sound packet after each."""
    await start_clock(dut)
    bench = Bench(dut)
    faults = [*({"code": code} for code in CODES), *({"status": status} for status in STATUSES.values()),
              {"poisoned": 1}, {"discontinued": 1}]
    kinds = [(fault, completed, dwords) for fault in faults for completed in (0, 1) for dwords in (1, 13, 14, 40)]
    bench.rng.shuffle(kinds)
    for fault, completed, dwords in kinds:
        payload = tuple(bench.rng.getrandbits(32) for _ in range(dwords))
        await bench.send(bench.any_packet(**fault, completed=completed, payload=payload))
        await bench.send(bench.any_packet())
    await bench.check()


@cocotb.test()
async def errors_mix(dut):
    """Several faults at once, packet after packet without a gap between them."""
    await start_clock(dut)
    bench, seen = Bench(dut, gaps=0.1), Counter()
    wanted = [(stray, bad, ends, discontinued, long) for stray in (False, True) for bad in (False, True)
              for ends in (False, True) for discontinued in (False, True) for long in (False, True)
              if bad or not stray]
    while len(bench.sent) < 400 or not all(seen[case] for case in wanted):
        assert len(bench.sent) < 10_000, f"never seen: {[case for case in wanted if not seen[case]]}"
        rng = bench.rng
        packet = bench.any_packet(code=rng.choice([NORMAL, NORMAL, *CODES]), poisoned=int(rng.random() < 0.2),
                                  status=rng.choice([0, 0, *STATUSES.values()]),
                                  discontinued=int(rng.random() < 0.2))
        await bench.send(packet)
        seen[packet.stray, packet.bad, packet.ends, bool(packet.discontinued), len(packet.payload) > 13] += 1
    await bench.check()


@pytest.mark.parametrize("sim", SIMULATORS)
def test_completions_are_decoded(sim):
    simulate(CompletionShim(), name="pcie_rc", cases=__file__, sim=sim)
