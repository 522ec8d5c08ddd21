"""Frames between card and MAC at unrelated clocks: whole, in order, at the line's speed, and none lost in silence."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from weft.hdl.board.mac_side import EVENTS, MAC_EVENTS, OWN_EVENTS, MacSide
from weft.tb.board.bench import Bench
from weft.tb.board.mac import FIFO_BYTES, OVERHEAD_BYTES
from weft.tb.flow.simulate import bench_seed, simulate

INDEX = {name: k for k, (name, _, _) in enumerate(EVENTS)}
PPM = 200                 # more than both ends of a link may differ by


def frames(rng, lengths):
    return [(rng.randbytes(length), 0) for length in lengths]


async def arrive(clk, received, count, cycles=20_000):
    """Wait until ``count`` frames are there."""
    for _ in range(cycles):
        if len(received) == count:
            return
        await RisingEdge(clk)
    raise AssertionError(f"{len(received)} of {count} frames after {cycles} cycles")


@cocotb.test()
async def frames_of_all_sizes_pass_both_ways(dut):
    """With pauses of the card and of the MAC, at either sign of the difference between the clocks."""
    ppm = PPM if bench_seed() & 1 else -PPM
    bench = await Bench(dut, bench_seed(), ppm=ppm, pause=0.2).start()
    lengths = [*range(60, 132), *(bench.rng.randint(132, 2200) for _ in range(10)), 4200, 9000]
    bench.rng.shuffle(lengths)
    there, back = frames(bench.rng, lengths), frames(bench.rng, lengths)
    back = [(data, int(bench.rng.random() < 0.1)) for data, _ in back]
    bench.card.busy = 0.1
    receiving = cocotb.start_soon(bench.source.send(back))
    await bench.card.send(there, pause=0.3)
    await receiving
    await arrive(dut.mac_clk, bench.sink.frames, len(there))
    await arrive(dut.clk, bench.card.received, len(back))
    assert bench.sink.frames == there
    assert bench.card.received == back
    for name in ("tx_dropped", "rx_dropped", "tx_aborted"):
        assert await bench.counter(INDEX[name]) == 0, name


@cocotb.test()
async def the_line_is_full(dut):
    """64 bytes to 4 KiB (with FCS) at the line's speed both ways; cycles counted."""
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
        # From the frame at which the MAC's own buffer is full on, the line alone decides.
        ahead = 2 + FIFO_BYTES // length
        cycles = bench.sink.times[first + count - 1] - bench.sink.times[first + ahead]
        ideal = (count - 1 - ahead) * (length + OVERHEAD_BYTES) / (12.5 * bench.mac_ps / 1000)
        dut._log.info(f"{length + 4} bytes: {cycles} cycles, {ideal:.0f} of the line")
        assert cycles <= ideal * 1.01 + 2
    assert await bench.counter(INDEX["rx_dropped"]) == 0


@cocotb.test()
async def what_does_not_fit_is_dropped_whole_and_counted(dut):
    """More beats come than are taken, for longer than the FIFO helps: whole frames are missing, none is torn."""
    bench = await Bench(dut, bench_seed()).start()
    bench.card.busy = 0.6
    some = [(index.to_bytes(4, "little") + bench.rng.randbytes(bench.rng.choice((62, 300))), 0) for index in range(400)]
    await bench.source.send(some)
    bench.card.busy = 0.0
    await ClockCycles(dut.clk, 600)
    missing = len(some) - len(bench.card.received)
    assert missing > 0, "the case did not occur"
    kept = [some[int.from_bytes(frame[:4], "little")] for frame, _ in bench.card.received]
    assert bench.card.received == kept
    assert [frame[:4] for frame, _ in kept] == sorted((frame[:4] for frame, _ in kept),
                                                      key=lambda index: int.from_bytes(index, "little"))
    assert await bench.counter(INDEX["rx_dropped"]) == missing


@cocotb.test()
async def a_frame_without_end_is_cut(dut):
    """A frame longer than the FIFO ends with the error mark, and the next ones pass."""
    bench = await Bench(dut, bench_seed()).start()
    long, some = frames(bench.rng, [64 * 700]), frames(bench.rng, [64, 1000])
    receiving = cocotb.start_soon(bench.source.send(long + some))
    await with_timeout(cocotb.start_soon(bench.card.send(long + some)), 100, "us")
    await receiving
    await arrive(dut.mac_clk, bench.sink.frames, 3)
    await arrive(dut.clk, bench.card.received, 3)
    for got in (bench.sink.frames, bench.card.received):
        assert got[0] == (long[0][0][:9216], 1)
        assert got[1:] == some
    assert await bench.counter(INDEX["tx_dropped"]) == 1
    assert await bench.counter(INDEX["rx_dropped"]) == 1


@cocotb.test()
async def resets_tear_nothing(dut):
    """A reset of either side at any moment: what arrives without the error mark is a frame that was sent, in order."""
    bench = await Bench(dut, bench_seed()).start()
    cut = 0
    for turn in range(6):
        side = "card" if turn & 1 else "mac"
        first, at = len(bench.sink.frames), len(bench.card.received)
        some = frames(bench.rng, [bench.rng.choice((60, 300, 2000)) for _ in range(14)])
        sending = cocotb.start_soon(bench.card.send(some, pause=0.2))
        receiving = cocotb.start_soon(bench.source.send(some))
        await ClockCycles(dut.clk, bench.rng.randrange(20, 220))
        if side == "card":
            sending.cancel()
            dut.s_axis_tx__tvalid.value = 0
        else:
            receiving.cancel()
            dut.s_axis_mac__tvalid.value = 0
        await bench.reset(side)
        await (receiving if side == "card" else sending)
        await ClockCycles(dut.clk, 600)
        for got in (bench.sink.frames[first:], bench.card.received[at:]):
            whole = [frame for frame, error in got if not error]
            cut += len(got) - len(whole)
            places = [[frame for frame, _ in some].index(frame) for frame in whole]
            assert places == sorted(set(places))
        after = frames(bench.rng, [60, 1500, 100])
        first, at = len(bench.sink.frames), len(bench.card.received)
        await bench.card.send(after)
        await bench.source.send(after)
        await arrive(dut.mac_clk, bench.sink.frames, first + 3)
        await arrive(dut.clk, bench.card.received, at + 3)
        assert bench.sink.frames[first:] == after
        assert bench.card.received[at:] == after
    dut._log.info(f"{cut} frames were cut")


@cocotb.test()
async def without_a_link_the_card_does_not_stand_still(dut):
    """Frames are dropped and counted while the link is down."""
    bench = await Bench(dut, bench_seed()).start()
    dut.levels.value = 0
    await ClockCycles(dut.clk, 20)
    assert int(dut.status.value) == 0 and int(dut.tx_enable.value) == 0
    before = len(bench.sink.frames)
    some = frames(bench.rng, [60, 4000, 64, 65])
    await bench.card.send(some)
    await ClockCycles(dut.clk, 200)
    assert len(bench.sink.frames) == before
    assert await bench.counter(INDEX["tx_dropped"]) == len(some)
    assert await bench.counter(INDEX["link_lost"]) == 1


@cocotb.test()
async def what_the_mac_tells_is_counted(dut):
    """Each event by its increments, read from the other clock while it goes on counting."""
    bench = await Bench(dut, bench_seed()).start()
    expected, place = [], 0
    for name, width, _ in (*MAC_EVENTS, *OWN_EVENTS[:2]):
        told = [bench.rng.getrandbits(width) for _ in range(20)]
        for increment in told:
            dut.events.value = increment << place
            await ClockCycles(dut.mac_clk, 1)
        expected.append((name, sum(told)))
        place += width
    dut.events.value = 0
    await ClockCycles(dut.mac_clk, 4)
    assert [(name, await bench.counter(INDEX[name])) for name, _ in expected] == expected


@pytest.mark.parametrize("sim", ["icarus"])
def test_mac_side(sim):
    simulate(MacSide(), name="board_mac_side", cases=__file__, sim=sim)
