"""Tests of flow control between two clocks: latency of pauses in both directions, and resets."""

from collections import Counter

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from weft.hdl.contract import wire
from weft.hdl.mac.rx_crossing import FRAME_BYTES
from weft.tb.sim.flow.simulate import bench_seed, simulate
from weft.tb.test.hdl.mac.bench import Bench, BothCrossings
from weft.tb.test.hdl.mac.test_crossing import PPM, arrive, frames, passes
from weft.tb.test.pause_frame import pause_frame
from weft.tb.test.rounds import rounds

OWN_MAC, PEER_MAC = 0x02_00_00_00_00_0A, 0x02_00_00_00_00_0B
# Cycles of the MAC: from a requested pause to its frame; from ``pause`` until no frame leaves the buffer.
ASKED, HELD = 8, 6
OUTSTANDING = 2            # beats
SLACK = 3                   # until the request is seen at the card's clock


def control_frame(rng):
    """Return a MAC control frame of any length."""
    times = {k: rng.getrandbits(16) for k in rng.sample(range(wire.PRIORITIES), 2)}
    return pause_frame(times, src=PEER_MAC, length=rng.choice((14, 60, 60, 60, 64, 65, 300)))


def is_control(frame):
    return len(frame) >= wire.ETH.size_bytes and wire.ETH.unpack(frame).ethertype == wire.ETHERTYPE_MAC_CONTROL


async def start(dut):
    bench = Bench(dut, bench_seed(), ppm=PPM if bench_seed() & 1 else -PPM)
    return await bench.start()


def asked(rng):
    """Return a pause to request, and its frame."""
    priority, quanta = rng.randrange(wire.PRIORITIES), rng.getrandbits(16)
    return {"source": OWN_MAC, "priority": priority, "quanta": quanta}, pause_frame({priority: quanta}, src=OWN_MAC)


@cocotb.test()
async def control_frames_use_a_separate_path(dut):
    """Also while the card makes other frames wait, and after frames that were cut."""
    bench = await start(dut)
    rng, sent = bench.rng, []
    bench.card.busy = 0.1
    for _ in range(120):
        sent.append((control_frame(rng) if rng.random() < 0.4 else rng.randbytes(rng.choice((60, 64, 65, 300))), 0))
    cut = [(pause_frame({0: 1}, src=PEER_MAC, length=FRAME_BYTES + 100), 0), (rng.randbytes(FRAME_BYTES + 100), 0)]
    for k, frame in enumerate(cut):
        sent.insert(rng.randrange(30, 60) + 30 * k, frame)
    await bench.source.send(sent)
    parts = {kind: [(frame[:FRAME_BYTES], int(len(frame) > FRAME_BYTES)) for frame, _ in sent
                    if is_control(frame) == kind] for kind in (True, False)}
    assert min(map(len, parts.values())) > 20
    await arrive(dut.clk, bench.card.control, len(parts[True]))
    await arrive(dut.clk, bench.card.received, len(parts[False]))
    assert bench.card.control == parts[True]
    assert bench.card.received == parts[False]


@cocotb.test()
async def resets_of_the_mac_block_no_path(dut):
    """A frame that a reset cuts ends with the error mark at its output; later frames take their correct output."""
    bench = await start(dut)
    rng, seen = bench.rng, Counter()
    for _ in rounds(seen, ["cut control", "cut data"], least=10, most=400):
        at = len(bench.card.control), len(bench.card.received)
        some = [(pause_frame({0: 1}, src=PEER_MAC, length=2000) if rng.getrandbits(1) else rng.randbytes(2000), 0)
                for _ in range(8)]
        receiving = cocotb.start_soon(bench.source.send(some))
        await ClockCycles(dut.clk, rng.randrange(20, 220))
        receiving.cancel()
        dut.s_axis__tvalid.value = 0
        await bench.reset("mac")
        await ClockCycles(dut.clk, 100)
        for name, got in (("control", bench.card.control[at[0]:]), ("data", bench.card.received[at[1]:])):
            assert all(error or is_control(frame) == (name == "control") for frame, error in got)
            assert all(frame in some for frame in got if not frame[1])
            seen[f"cut {name}"] += sum(error for _, error in got)
        # One at a time: each arrives whole.
        after = [(control_frame(rng), 0), (rng.randbytes(300), 0)]
        at = len(bench.card.control), len(bench.card.received)
        await bench.source.send(after)
        await arrive(dut.clk, bench.card.control, at[0] + 1)
        await arrive(dut.clk, bench.card.received, at[1] + 1)
        assert [bench.card.control[-1], bench.card.received[-1]] == after


@cocotb.test()
async def pauses_are_sent_between_frames(dut):
    """In order, whole, and directly after the frame in progress, however many frames wait or are held back."""
    bench = await start(dut)
    rng, wanted, seen = bench.rng, [], Counter()
    for _ in rounds(seen, ["held", "busy", "idle"], least=30, most=300, times=5):
        busy, held = rng.random() < 0.7, rng.random() < 0.4
        first = len(bench.sink.frames)
        dut.pause.value = int(held)
        some = frames(rng, [rng.choice((60, 300, 1500)) for _ in range(5)]) if busy else []
        sending = cocotb.start_soon(bench.card.send(some))
        await ClockCycles(dut.mac_clk, rng.randrange(HELD, 60))
        pause, frame = asked(rng)
        began, at = len(bench.sink.frames), bench.sink.cycle
        await with_timeout(cocotb.start_soon(bench.card.ask(**pause)), 1, "us")
        await arrive(dut.mac_clk, Shown(bench.sink.frames, frame), 1)
        place = bench.sink.frames.index((frame, 0), began)
        late = [time for time in bench.sink.times[began:place] if time > at + ASKED + SLACK]
        assert len(late) <= 1, "more than the outstanding frames preceded a pause"
        if not busy:
            assert bench.sink.times[place] - at <= ASKED + SLACK
        seen["held" if held and busy else "busy" if busy else "idle"] += 1
        dut.pause.value = 0
        await sending
        await arrive(dut.mac_clk, bench.sink.frames, first + len(some) + 1)
        got = bench.sink.frames[first:]
        got.remove((frame, 0))
        assert got == some
        wanted.append(frame)
    assert not bench.seen.total(), bench.seen


class Shown:
    """Number of times a frame occurs among the received ones."""

    def __init__(self, found, frame):
        self._found, self._frame = found, frame

    def __len__(self):
        return self._found.count((self._frame, 0))


@cocotb.test()
async def pause_leaves_an_idle_line_soon(dut):
    """Count the cycles of the MAC from the requested pause to its frame."""
    bench = await start(dut)
    found = Counter()
    for _ in range(40):
        pause, frame = asked(bench.rng)
        asking, waited = cocotb.start_soon(bench.card.ask(**pause)), 0
        while not int(dut.m_axis__tvalid.value):
            await RisingEdge(dut.mac_clk)
            waited += 1
        found[waited] += 1
        await asking
        await arrive(dut.mac_clk, Shown(bench.sink.frames, frame), 1)
        await ClockCycles(dut.clk, bench.rng.randrange(16, 24))
    dut._log.info(f"cycles from a pause that is asked for to its frame: {dict(found)}")
    assert max(found) <= ASKED, found


@cocotb.test()
async def no_pause_is_lost(dut):
    """Pauses are requested back to back."""
    bench = await start(dut)
    pauses = [asked(bench.rng) for _ in range(40)]
    for pause, _ in pauses:
        await with_timeout(cocotb.start_soon(bench.card.ask(**pause)), 1, "us")
        await ClockCycles(dut.clk, bench.rng.choice((1, 1, 2, 5)))
    await arrive(dut.mac_clk, bench.sink.frames, len(pauses))
    assert bench.sink.frames == [(frame, 0) for _, frame in pauses]


@cocotb.test()
async def held_frame_does_not_start(dut):
    """Soon after ``pause`` rises only frames in progress are sent; after it falls all others follow."""
    bench = await start(dut)
    rng, most = bench.rng, 0
    for _ in range(30):
        first = len(bench.sink.frames)
        some = frames(rng, [rng.choice((60, 64, 300)) for _ in range(40)])
        sending = cocotb.start_soon(bench.card.send(some))
        await ClockCycles(dut.clk, rng.randrange(4, 50))
        dut.pause.value = 1
        await ClockCycles(dut.mac_clk, HELD)
        late = len(bench.sink.frames)
        await ClockCycles(dut.mac_clk, 300)
        most = max(most, len(bench.sink.frames) - late)
        held = len(bench.sink.frames)
        await ClockCycles(dut.mac_clk, 200)
        assert len(bench.sink.frames) == held < first + len(some)
        dut.pause.value = 0
        await sending
        await arrive(dut.mac_clk, bench.sink.frames, first + len(some))
        assert bench.sink.frames[first:] == some
    # The sink accepts beats ahead of the line, and records frames at the last beat: one in progress, and two beats.
    assert 0 < most <= 1 + OUTSTANDING, most


@cocotb.test()
async def reset_of_the_subsystems_during_pauses_truncates_nothing(dut):
    """``sending`` is consistent with the effect of ``hold``, whatever pauses begin and end in between."""
    bench = await start(dut)
    rng, seen = bench.rng, Counter()

    async def toggle():
        while True:
            dut.pause.value = 1 - int(dut.pause.value)
            await ClockCycles(dut.clk, rng.choice((1, 1, 2, 3, 4, 5, 8, 20)))

    for _ in rounds(seen, ["lost", "held"], least=40, most=200):
        first = len(bench.sink.frames)
        some = frames(rng, [rng.choice((60, 300, 2000)) for _ in range(14)])
        sending, toggling = cocotb.start_soon(bench.card.send(some)), cocotb.start_soon(toggle())
        await ClockCycles(dut.clk, rng.randrange(20, 160))
        if rng.getrandbits(1):          # a pause ends in the same cycle
            toggling.cancel()
            dut.pause.value = 1
            await ClockCycles(dut.clk, 60)
            dut.pause.value = 0
            await ClockCycles(dut.clk, rng.randrange(1, 4))
        seen["held"] += int(dut.pause.value)
        _, held = await bench.reset_subsystems(sending)
        toggling.cancel()
        dut.pause.value = 0
        await ClockCycles(dut.clk, 600)
        assert bench.sink.frames[first:] == some[:held - first], "cut, or sent after the reset"
        seen["lost"] += len(some) - (held - first)
        await passes(bench)
    assert not bench.seen.total(), bench.seen


@cocotb.test()
async def resets_leave_the_path_of_pauses_open(dut):
    """After resets of either side at any moment, pauses pass as before, and every received pause was requested."""
    bench = await start(dut)
    rng, seen = bench.rng, Counter()
    for turn in rounds(seen, ["lost", "sent"], least=20, most=200):
        side, first = ("card", "mac")[turn & 1], len(bench.sink.frames)
        pauses = [asked(rng) for _ in range(4)]

        async def ask(pauses=pauses):
            for pause, _ in pauses:
                await bench.card.ask(**pause)

        asking = cocotb.start_soon(ask())
        await ClockCycles(dut.clk, rng.randrange(1, 50))
        if side == "card":
            asking.cancel()
            dut.i_pause__valid.value = 0
        await bench.reset(side)
        if side == "mac":
            await with_timeout(asking, 10, "us")
        await ClockCycles(dut.clk, 100)
        got = [frame for frame, _ in bench.sink.frames[first:]]
        assert set(got) <= {frame for _, frame in pauses}
        seen["lost"] += len(pauses) - len(set(got))
        seen["sent"] += len(set(got))
        pause, frame = asked(rng)
        at = len(bench.sink.frames)
        await with_timeout(cocotb.start_soon(bench.card.ask(**pause)), 1, "us")
        await arrive(dut.mac_clk, bench.sink.frames, at + 1)
        assert bench.sink.frames[at:] == [(frame, 0)]
        await ClockCycles(dut.clk, 30)


@pytest.mark.parametrize("sim", ["icarus"])
def test_pause_crossing(sim):
    simulate(BothCrossings(), name="mac_crossing", cases=__file__, sim=sim)
