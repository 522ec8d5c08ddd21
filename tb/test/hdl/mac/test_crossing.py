"""Tests of frames between card and MAC at unrelated clocks: whole, in order, at line rate; every drop is counted."""

from collections import Counter

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from weft.hdl.contract import wire
from weft.hdl.mac.rx_crossing import FRAME_BYTES
from weft.hdl.part.layouts import BEAT_BYTES
from weft.tb.sim.flow.simulate import bench_seed, simulate
from weft.tb.test.hdl.mac.bench import BUFFER_BEATS, Bench, BothCrossings
from weft.tb.test.hdl.mac.line import FIFO_BYTES, OVERHEAD_BYTES
from weft.tb.test.rounds import rounds

PPM = 200                 # more than the clocks at the ends of a link may differ
TYPE = slice(12, 14)      # of a frame: its EtherType
LONGEST = BUFFER_BEATS * BEAT_BYTES


def made(rng, begin, length):
    """Return a frame of random bytes that is not a MAC control frame."""
    frame = begin + rng.randbytes(length)
    return frame[:TYPE.start] + wire.ETHERTYPE_IPV4.to_bytes(2, "big") + frame[TYPE.stop:], 0


def frames(rng, lengths):
    return [made(rng, b"", length) for length in lengths]


async def arrive(clk, received, count, cycles=20_000):
    """Wait until ``count`` frames were received."""
    for _ in range(cycles):
        if len(received) == count:
            return
        await RisingEdge(clk)
    raise AssertionError(f"{len(received)} of {count} frames after {cycles} cycles")


def some_bad(rng, some):
    return [(data, int(rng.random() < 0.1)) for data, _ in some]


@cocotb.test()
async def frames_of_all_sizes_pass_in_both_directions(dut):
    """With pauses of the card and of the MAC, and either sign of the clock difference.

    Frames that the card aborted are dropped; those that the MAC marks as bad keep the mark.
    """
    ppm = PPM if bench_seed() & 1 else -PPM
    bench = await Bench(dut, bench_seed(), ppm=ppm, pause=0.2).start()
    lengths = [*range(60, 132), *(bench.rng.randint(132, 2200) for _ in range(10)), 4200, LONGEST]
    bench.rng.shuffle(lengths)
    there, back = (some_bad(bench.rng, frames(bench.rng, lengths)) for _ in range(2))
    good = [frame for frame in there if not frame[1]]
    assert len(good) < len(there)
    bench.card.busy = 0.1
    receiving = cocotb.start_soon(bench.source.send(back))
    await bench.card.send(there, pause=0.3)
    await receiving
    await arrive(dut.mac_clk, bench.sink.frames, len(good))
    await arrive(dut.clk, bench.card.received, len(back))
    assert bench.sink.frames == good
    assert bench.card.received == back
    assert not bench.seen.total(), bench.seen
    # The last aborted frame, and frames that the MAC takes before it, may still be in the buffer.
    if not int(dut.empty.value):
        await with_timeout(RisingEdge(dut.empty), 20, "us")
    assert bench.sink.frames == good and bench.card.received == back


@cocotb.test()
async def the_line_is_full(dut):
    """64 bytes to 4 KiB (with FCS) at line rate in both directions; cycles are counted."""
    bench = await Bench(dut, bench_seed(), ppm=PPM).start()
    for length in (60, 252, 1020, 4092):
        count = max(6, 5000 // length)
        some = frames(bench.rng, [length] * count)
        first, at = len(bench.sink.frames), len(bench.card.received)
        receiving = cocotb.start_soon(bench.source.send(some))
        await bench.card.send(some)
        await receiving
        await arrive(dut.mac_clk, bench.sink.frames, first + count)
        await arrive(dut.clk, bench.card.received, at + count)
        assert [frame for frame, _ in bench.sink.frames[first:]] == [frame for frame, _ in some]
        assert bench.card.received[at:] == some
        # From the frame that fills the MAC's buffer on, the line alone sets the rate.
        ahead = 2 + FIFO_BYTES // length
        cycles = bench.sink.times[first + count - 1] - bench.sink.times[first + ahead]
        ideal = (count - 1 - ahead) * (length + OVERHEAD_BYTES) / (12.5 * bench.mac_ps / 1000)
        dut._log.info(f"{length + 4} bytes: {cycles} cycles, {ideal:.0f} of the line")
        assert cycles <= ideal * 1.01 + 2
    assert not bench.seen.total(), bench.seen


@cocotb.test()
async def a_frame_is_stored_once(dut):
    """The first beat leaves soon after the last one came, whatever the frame's length."""
    bench = await Bench(dut, bench_seed()).start()
    found = {}
    for length in (60, 1020, 4092):
        await bench.card.send(frames(bench.rng, [length]))
        waited = 0
        while not int(dut.m_axis__tvalid.value):
            await RisingEdge(dut.mac_clk)
            waited += 1
        found[length] = waited
        await arrive(dut.mac_clk, bench.sink.frames, len(found))
    dut._log.info(f"cycles of the MAC from the last beat on: {found}")
    assert max(found.values()) <= 12, found


@cocotb.test()
async def oversized_frame_is_dropped_and_counted(dut):
    """More beats come than are taken, for longer than the FIFO can absorb: whole frames are missing, none is cut."""
    bench = await Bench(dut, bench_seed()).start()
    bench.card.busy = 0.6
    some = [made(bench.rng, index.to_bytes(4, "little"), bench.rng.choice((62, 300))) for index in range(400)]
    await bench.source.send(some)
    bench.card.busy = 0.0
    await ClockCycles(dut.clk, 600)
    missing = len(some) - len(bench.card.received)
    assert missing > 0, "the case did not occur"
    kept = [some[int.from_bytes(frame[:4], "little")] for frame, _ in bench.card.received]
    assert bench.card.received == kept
    assert [frame[:4] for frame, _ in kept] == sorted((frame[:4] for frame, _ in kept),
                                                      key=lambda index: int.from_bytes(index, "little"))
    assert bench.seen == {"rx_dropped": missing, "too_long": 0, "dropped": 0, "aborted": 0}


@cocotb.test()
async def a_frame_without_end_is_cut(dut):
    """A frame to the MAC that is longer than the buffer is dropped and counted as too long.

    One from the MAC ends with the error mark. The next frames pass.
    """
    bench = await Bench(dut, bench_seed()).start()
    long, some = frames(bench.rng, [64 * 700]), frames(bench.rng, [64, 1000])
    receiving = cocotb.start_soon(bench.source.send(long + some))
    await with_timeout(cocotb.start_soon(bench.card.send(frames(bench.rng, [LONGEST + 1]) + long + some)), 100, "us")
    await receiving
    await arrive(dut.mac_clk, bench.sink.frames, 2)
    await arrive(dut.clk, bench.card.received, 3)
    assert bench.sink.frames == some
    assert bench.card.received == [(long[0][0][:FRAME_BYTES], 1), *some]
    assert bench.seen == {"rx_dropped": 1, "too_long": 2, "dropped": 0, "aborted": 0}


@cocotb.test()
async def resets_truncate_no_frame(dut):
    """After a reset of either side at any moment, each frame without the error mark was sent, and the order is kept."""
    bench, seen = await Bench(dut, bench_seed()).start(), Counter()
    for turn in rounds(seen, ["cut to the MAC"], least=6, most=60):
        side = "card" if turn & 1 else "mac"
        first, at = len(bench.sink.frames), len(bench.card.received)
        some = frames(bench.rng, [bench.rng.choice((60, 300, 2000)) for _ in range(14)])
        sending = cocotb.start_soon(bench.card.send(some, pause=0.2))
        receiving = cocotb.start_soon(bench.source.send(some))
        await ClockCycles(dut.clk, bench.rng.randrange(20, 220))
        if side == "card":
            sending.cancel()
            dut.i__valid.value = 0
        else:
            receiving.cancel()
            dut.s_axis__tvalid.value = 0
        await bench.reset(side)
        await (receiving if side == "card" else sending)
        await ClockCycles(dut.clk, 600)
        for end, got in (("the MAC", bench.sink.frames[first:]), ("the card", bench.card.received[at:])):
            whole = [frame for frame, error in got if not error]
            seen[f"cut to {end}"] += len(got) - len(whole)
            places = [[frame for frame, _ in some].index(frame) for frame in whole]
            assert places == sorted(set(places))
        await passes(bench)
    cut_to_mac = sum(error for _, error in bench.sink.frames)
    assert seen["cut to the MAC"] == cut_to_mac == bench.seen["aborted"]
    dut._log.info(f"{seen}; {bench.seen}")


async def passes(bench):
    """Check that frames pass in both directions again."""
    dut, after = bench.dut, frames(bench.rng, [60, 1500, 100])
    first, at = len(bench.sink.frames), len(bench.card.received)
    await bench.card.send(after)
    await bench.source.send(after)
    await arrive(dut.mac_clk, bench.sink.frames, first + 3)
    await arrive(dut.clk, bench.card.received, at + 3)
    assert bench.sink.frames[first:] == after
    assert bench.card.received[at:] == after


@cocotb.test()
async def reset_of_the_subsystems_truncates_nothing(dut):
    """The sender is held, the subsystems are reset with frames in the buffer, and the hold is released.

    Frames that the MAC has begun end; the others are dropped.
    """
    bench = await Bench(dut, bench_seed()).start()
    seen = Counter()
    for _ in rounds(seen, ["lost", "waited"], least=8, most=80):
        first = len(bench.sink.frames)
        some = frames(bench.rng, [bench.rng.choice((60, 300, 2000)) for _ in range(14)])
        sending = cocotb.start_soon(bench.card.send(some))
        await ClockCycles(dut.clk, bench.rng.randrange(20, 160))
        waited, held = await bench.reset_subsystems(sending)
        seen["waited"] += waited
        await ClockCycles(dut.clk, 600)
        assert bench.sink.frames[first:] == some[:held - first], "cut, or sent after the reset"
        seen["lost"] += len(some) - (held - first)
        await passes(bench)
    assert not bench.seen.total(), bench.seen


@cocotb.test()
async def reset_of_the_subsystems_does_not_wait_for_a_mac_in_reset(dut):
    """While the MAC is in reset, it has no frame in progress."""
    bench = await Bench(dut, bench_seed()).start()
    dut.mac_rst.value = 1
    await ClockCycles(dut.clk, 4)
    assert not int(dut.sending.value)
    dut.mac_rst.value = 0
    await ClockCycles(dut.clk, 64)
    assert int(dut.sending.value)
    await passes(bench)


@cocotb.test()
async def card_without_a_link_does_not_stall(dut):
    """Frames are dropped and counted while the link is down."""
    bench = await Bench(dut, bench_seed()).start()
    dut.up.value = 0
    await ClockCycles(dut.clk, 20)
    some = frames(bench.rng, [60, 4000, 64, 65])
    await bench.card.send(some)
    await ClockCycles(dut.clk, 200)
    assert not bench.sink.frames
    assert bench.seen == {"dropped": len(some), "too_long": 0, "aborted": 0, "rx_dropped": 0}
    dut.up.value = 1
    await ClockCycles(dut.clk, 20)
    await passes(bench)


@cocotb.test()
async def slow_mac_is_reported(dut):
    """``stalled`` counts the cycles of the card for which the MAC makes beats wait, except a few."""
    bench = await Bench(dut, bench_seed()).start()
    stalled = 0
    sending = cocotb.start_soon(bench.card.send(frames(bench.rng, [1020] * 30)))
    while not sending.done():
        await RisingEdge(dut.clk)
        stalled += int(dut.stalled.value)
    # 30 frames of 1044 bytes on the wire take 626 cycles, their beats 480; the buffer takes the last ones.
    assert 50 < stalled < 626, stalled


@pytest.mark.parametrize("sim", ["icarus"])
def test_crossing(sim):
    simulate(BothCrossings(), name="mac_crossing", cases=__file__, sim=sim)
