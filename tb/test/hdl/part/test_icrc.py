"""Tests of the ICRC block against the contract: random lengths, one beat per cycle, fixed latency."""

import os
import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from weft.hdl.contract import wire
from weft.hdl.part.icrc import Icrc
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import beats

FRAMES = 16
FLIPS = [*range(30, 40), 43, *range(48, 60)]  # bytes of the first beat that the ICRC covers


async def run(dut, frames, rng, gap):
    """Send frames; return the results and, for each, the cycles since its last beat was transferred."""
    results, latencies, ends, cycle = [], [], [], 0
    edge = RisingEdge(dut.clk)

    async def step():
        nonlocal cycle
        await edge
        if int(dut.o__valid.value):
            results.append(int(dut.o__payload.value))
            latencies.append(cycle - ends[len(results) - 1])
        cycle += 1

    sent = 0
    for frame in frames:
        for beat in beats(frame, unused=rng.randbytes(1)):
            while rng.random() < gap:
                dut.i__valid.value = 0
                await step()
            dut.i__payload.value = beat
            dut.i__valid.value = 1
            sent += 1
            await step()
        ends.append(cycle - 1)
    dut.i__valid.value = 0
    busy = cycle
    latency = Icrc.CHECK_LATENCY if int(os.environ["ICRC_CHECK"]) else Icrc.LATENCY
    for _ in range(latency + 1):
        await step()
    assert set(latencies) == {latency}
    if not gap:
        assert busy == sent, "one beat per cycle"
    return results


def random_frames(rng):
    return [rng.randbytes(rng.choice([62, 64, 65, 128, 4166, rng.randint(60, 4200)])) for _ in range(FRAMES)] + [
        rng.randbytes(n) for n in range(60, 130)]


@cocotb.test()
async def appended(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    if int(os.environ["ICRC_CHECK"]):
        return
    for gap in (0, 0.3):
        frames = random_frames(rng)
        results = await run(dut, frames, rng, gap)
        assert [r.to_bytes(4, "little") for r in results] == [wire.icrc(f) for f in frames]


@cocotb.test()
async def checked(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    if not int(os.environ["ICRC_CHECK"]):
        return
    for gap in (0, 0.3):
        frames, right = [], []
        for frame in random_frames(rng):
            frame = bytearray(frame + wire.icrc(frame))
            fault = rng.choice(["none", "router", "bit"])
            if fault == "bit":
                frame[rng.choice([*FLIPS, *range(64, len(frame)), len(frame) - 1])] ^= 1 << rng.randrange(8)
            elif fault == "router":  # fields that routers may change are not covered
                for at in (15, 22, 24, 25, 40, 41, 46):
                    frame[at] = rng.randrange(256)
            frames.append(bytes(frame))
            right.append(int(fault != "bit"))
        assert 0 < sum(right) < len(right)
        assert await run(dut, frames, rng, gap) == right


@pytest.mark.parametrize("sim", SIMULATORS)
@pytest.mark.parametrize("check", [False, True])
def test_icrc_equals_contract(sim, check):
    simulate(Icrc(check=check), name=f"icrc-{int(check)}", cases=__file__, sim=sim,
             env={"ICRC_CHECK": str(int(check))})
