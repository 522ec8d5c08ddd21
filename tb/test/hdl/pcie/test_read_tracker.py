"""Tests of the read tracker: it knows for every tag whether a read is outstanding."""

import random
from collections import Counter

import cocotb
import pytest
from cocotb.triggers import ReadOnly, RisingEdge

from weft.hdl.pcie.read_tracker import ReadTracker
from weft.hdl.pcie.tlp import TAGS, CompletionBeat, ReadTlp
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import pack, unpack

ROUNDS = 6
TRAFFIC_CYCLES = 1500
SEEN = ("read", "refused read", "answer", "last answer", "stray", "lost", "answer while gone")


class Watch:
    """The block, cycle by cycle, beside a set of outstanding tags."""

    def __init__(self, dut):
        self.dut, self.rng, self.out, self.seen = dut, random.Random(bench_seed()), set(), Counter()
        self.before = None, 0, 0, 0     # completion, its beat, done and gone of the last cycle
        self.just_read = None           # read in the last cycle: no completion can come yet

    def some_tag(self):
        return self.rng.choice([*self.out]) if self.out and self.rng.random() < 0.7 else self.rng.randrange(TAGS)

    async def cycle(self, *, read=None, taken=1, answer=None, done=0, gone=0):
        """Send a read with tag ``read`` and a completion of tag ``answer`` (None: none), and check the outputs.

        Completions appear a cycle later. Returns the tag of a read that the tracker ended.
        """
        dut, rng, lost = self.dut, self.rng, None
        request = pack(ReadTlp, address=rng.getrandbits(62), dwords=rng.getrandbits(11), first_be=rng.getrandbits(4),
                       last_be=rng.getrandbits(4), tag=rng.randrange(TAGS) if read is None else read)
        beat = pack(CompletionBeat, data=rng.getrandbits(512), lanes=rng.getrandbits(16), dword=rng.getrandbits(10),
                    tag=rng.randrange(TAGS) if answer is None else answer, last=done | rng.randrange(2), done=done,
                    error=rng.randrange(2))
        dut.i_read__valid.value, dut.i_read__payload.value = int(read is not None), request
        dut.o_read__ready.value, dut.gone.value = taken, gone
        dut.i_completion__valid.value, dut.i_completion__payload.value = int(answer is not None), beat
        await ReadOnly()
        assert int(dut.o_read__valid.value) == (read is not None) and int(dut.i_read__ready.value) == taken
        assert int(dut.o_read__payload.value) == request
        (answer, beat, done, gone), self.before = self.before, (answer, beat, done, gone)
        shown, value = int(dut.o_completion__valid.value), int(dut.o_completion__payload.value)
        if answer is not None:
            assert shown == (answer in self.out), f"tag {answer}"
            assert value == beat or not shown
            self.seen["answer" if shown else "stray"] += 1
            self.seen["last answer"] += shown and done
            self.seen["answer while gone"] += shown and gone
        elif shown:
            lost = unpack(CompletionBeat, value).tag
            assert gone and lost in self.out, f"tag {lost}"
            assert value == pack(CompletionBeat, tag=lost, last=1, done=1, error=1)
            self.seen["lost"] += 1
        if shown and (lost is not None or done):
            self.out.discard(lost if answer is None else answer)
        if read is not None:
            self.seen["read" if taken else "refused read"] += 1
        await RisingEdge(dut.clk)
        self.just_read = read if taken else None
        if self.just_read is not None:
            self.out.add(read)
        return lost


@cocotb.test(timeout_time=200, timeout_unit="us")
async def every_tag_is_tracked(dut):
    await start_clock(dut)
    watch = Watch(dut)
    rng, out = watch.rng, watch.out
    for _ in range(ROUNDS):
        for _ in range(TRAFFIC_CYCLES):
            tag = rng.randrange(TAGS)
            read = tag if tag not in out and rng.random() < 0.6 else None
            answer = watch.some_tag() if rng.random() < 0.5 else None
            await watch.cycle(read=read, taken=int(rng.random() < 0.8), done=int(rng.random() < 0.6),
                              answer=answer if answer not in (read, watch.just_read) else None)
        await watch.cycle()     # no completion can come yet for the read before
        assert len(out) > TAGS // 4, "hardly a tag was out"
        for tag in rng.sample(sorted(out), 9):
            await watch.cycle(answer=tag, done=1, gone=1)       # completions that still come pass
        await watch.cycle(gone=1)
        left = len(out)
        lost = [await watch.cycle(gone=int(k < TAGS - 1)) for k in range(TAGS)]
        assert sum(tag is not None for tag in lost) == left and not out
    for tag in range(TAGS):
        await watch.cycle(answer=tag, done=1)
        await watch.cycle(gone=1)
    assert all(watch.seen[case] for case in SEEN), watch.seen


@pytest.mark.parametrize("sim", SIMULATORS)
def test_every_tag_is_tracked(sim):
    simulate(ReadTracker(), name="pcie_read_watch", cases=__file__, sim=sim)
