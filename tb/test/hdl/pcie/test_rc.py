"""Tests of the completion shim: address of each double word, end of a request, and every error of a completion."""

import random
from collections import Counter

import cocotb
import pytest
from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl.pcie.rc import CompletionShim
from weft.hdl.pcie.tlp import CompletionBeat
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import unpack
from weft.tb.test.hdl.pcie.rc_packets import CODES, NORMAL, PAGE_DWORDS, STATUSES, any_packet


class Bench:
    """Packets in, with gaps inside; every beat out, with its cycle."""

    def __init__(self, dut, gaps=0.3):
        self.dut, self.rng, self.gaps = dut, random.Random(bench_seed()), gaps
        self.cycle, self.sent, self.got = 0, [], []

    async def pass_cycle(self, beat=None):
        """Pass one cycle, with or without a beat."""
        dut, rng = self.dut, self.rng
        data, keep, last, user = beat or (rng.getrandbits(512), rng.getrandbits(16), rng.getrandbits(1),
                                          rng.getrandbits(161))
        dut.s_axis_rc__tvalid.value = int(beat is not None)
        dut.s_axis_rc__tdata.value, dut.s_axis_rc__tkeep.value = data, keep
        dut.s_axis_rc__tlast.value, dut.s_axis_rc__tuser.value = last, user
        dut.o__ready.value = rng.getrandbits(1)     # must be ignored
        await ReadOnly()
        assert int(dut.s_axis_rc__tready.value), "the link was stalled"
        if int(dut.o__valid.value):
            self.got.append((self.cycle, unpack(CompletionBeat, int(dut.o__payload.value))))
        await RisingEdge(dut.clk)
        self.cycle += 1

    async def send(self, packet):
        """Send a packet; return the cycles of its beats."""
        cycles = []
        for beat in packet.beats(self.rng):
            while self.rng.random() < self.gaps:
                await self.pass_cycle()
            cycles.append(self.cycle)
            await self.pass_cycle(beat)
        self.sent.append((packet, cycles))

    def any_packet(self, **fields):
        """Return a packet of :func:`~weft.tb.test.hdl.pcie.rc_packets.any_packet`."""
        return any_packet(self.rng, **fields)

    async def check(self):
        """Compare all beats out with all beats in: one for each, one cycle later."""
        await self.pass_cycle()
        await self.pass_cycle()
        got = iter(self.got)
        for packet, cycles in self.sent:
            if packet.stray:
                continue
            beats = []
            for cycle in cycles:
                at, beat = next(got)
                assert at == cycle + 1, f"{packet}: a beat of cycle {cycle} came out in {at}"
                beats.append(beat)
            packet.check(beats, packet.discontinued)
        assert next(got, None) is None, "a beat of nothing"


@cocotb.test()
async def double_words_are_placed(dut):
    """Completions of every length, up to the last double word of a page, at full rate and with gaps."""
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
async def every_error_is_reported(dut):
    """Each error code, status, poison and discontinuation alone, with a valid packet after each.

    With and without the completed bit, in one beat and in several.
    """
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
    """Several errors at once, packets without gaps between them."""
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
