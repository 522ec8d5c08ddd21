"""Tests of the store-and-forward buffer: whole frames, never interrupted; bad and oversized ones are dropped."""

import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge, with_timeout

from weft.hdl.transmit.send_buffer import DEPTH_MIN, SendBuffer
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import beats, receive
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.hdl.transmit.agents import refusal, run


@cocotb.test()
async def frames_pass_whole(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    source, sink = StreamSource(dut, "i", dut.clk, pause=0.3, rng=rng), StreamSink(dut, "o", dut.clk, rng=rng)
    too_long = interrupted = 0
    expected, oversized = [], 0
    for _ in range(60):
        size = rng.choice([1, 64, 65, rng.randint(1, 1500), 64 * DEPTH_MIN, 64 * DEPTH_MIN + 1, 64 * DEPTH_MIN * 2])
        if size > 1500 and rng.random() < 0.6:
            size //= 100
        frame, error = rng.randbytes(size), int(rng.random() < 0.2)
        for beat in beats(frame, error=error):
            source.send_nowait(beat)
        if size > 64 * DEPTH_MIN:
            oversized += 1
        elif not error:
            expected.append(frame)

    async def watch():
        nonlocal too_long, interrupted
        inside = False
        while True:
            await RisingEdge(dut.clk)
            too_long += int(dut.too_long.value)
            valid = int(dut.o__valid.value)
            interrupted += inside and not valid
            if valid and int(dut.o__ready.value):
                inside = not int(dut.o__payload.value) >> 518 & 1

    cocotb.start_soon(watch())
    got = [await with_timeout(receive(sink), 200, "us") for _ in expected]
    assert got == [(frame, 0) for frame in expected]
    await with_timeout(source.idle(), 100, "us")
    for _ in range(3):
        await RisingEdge(dut.clk)
    assert int(dut.empty.value) and not len(sink)
    assert not interrupted and too_long == oversized


@cocotb.test()
async def back_pressure_and_full_rate(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    source, sink = StreamSource(dut, "i", dut.clk, rng=rng), StreamSink(dut, "o", dut.clk, pause=0.5, rng=rng)
    frames = [rng.randbytes(rng.choice([1000, 64 * DEPTH_MIN, 4170])) for _ in range(12)]
    for frame in frames:
        for beat in beats(frame):
            source.send_nowait(beat)
    assert [(await with_timeout(receive(sink), 200, "us"))[0] for _ in frames] == frames
    sink.pause = 0
    count = 400
    for beat in beats(bytes(64 * 10)) * (count // 10):
        source.send_nowait(beat)
    before, cycles = sink.received, 0
    while sink.received < before + count:
        await RisingEdge(dut.clk)
        cycles += sink.received > before
    assert cycles <= count + 1


@pytest.mark.parametrize("sim", SIMULATORS)
def test_buffer_passes_complete_frames(sim):
    run(SendBuffer(DEPTH_MIN), name="send-buffer", cases=__file__, sim=sim)


def test_depth_is_checked():
    assert "too small" in refusal(lambda: SendBuffer(64))
    assert "power of two" in refusal(lambda: SendBuffer(200))
