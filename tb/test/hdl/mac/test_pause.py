"""Tests of flow control: pause frames go out between frames, and hold frames back for a limited time."""

import random
from collections import Counter

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hdl.contract import abi, wire
from weft.hdl.contract.abi import Reason
from weft.hdl.contract.params import preset
from weft.hdl.mac.pause import Pause
from weft.hdl.mac.pause_gate import PauseGate
from weft.hdl.part.counter_ports import DropEvent, count_outputs, pass_counts
from weft.hdl.part.interfaces import Network
from weft.hdl.part.layouts import BEAT_BYTES, Beat
from weft.hdl.part.registers import register_port
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import start_clock
from weft.tb.sim.stream.payload import beats, receive
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.pause_frame import pause_frame as frame_of

LIMIT = 1 << 9
PARAMS = preset("test").with_(pause_limit_log2=9)
MAC, PEER_MAC = 0x02_00_00_00_00_0A, 0x02_00_00_00_00_0B
BITS_PER_CYCLE = 400        # of 100 Gb/s in 4 ns
SOON = 6                    # most cycles from a cause to its effect


class FlowControl(wiring.Component):
    """Both halves of flow control, connected as in a card with one clock."""

    def __init__(self):
        super().__init__({
            "registers": In(register_port("pause")), "network": In(Network),
            "i": In(stream.Signature(Beat)), "o": Out(stream.Signature(Beat)),
            "i_control": In(stream.Signature(Beat, always_ready=True)),
            "high": In(1), "low": In(1), "pause_enabled": Out(1), "drop": Out(DropEvent),
            **count_outputs(Pause.COUNTS)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.pause, m.submodules.gate = pause, gate = Pause(PARAMS), PauseGate()
        for name in ("registers", "network", "i_control"):
            connect(m, flipped(getattr(self, name)), getattr(pause, name))
        connect(m, pause.drop, flipped(self.drop))
        connect(m, flipped(self.i), gate.i)
        connect(m, gate.o, flipped(self.o))
        connect(m, pause.o, gate.i_pause)
        pass_counts(m, [pause], self)
        m.d.comb += [gate.hold.eq(pause.hold), pause.high.eq(self.high), pause.low.eq(self.low),
                     self.pause_enabled.eq(pause.pause_enabled)]
        return m


def pause_frame(times, *, src=PEER_MAC, **others):
    return frame_of(times, src=src, **others)


def cycles_of(quanta):
    """Return the cycles of a pause, rounded up."""
    return -(-quanta * wire.PAUSE_QUANTUM_BITS // BITS_PER_CYCLE)


class Storms:
    """Model of the limit: cycles of pause count up, the others down; from ``LIMIT`` to 0 pauses are ignored."""

    def __init__(self):
        self.weight, self.ignored, self.begins = 0, False, False

    def pass_cycle(self, *, held, begins):
        """Compare the strobe of a storm in a cycle; ``held``: the cycle before was one of a pause."""
        assert begins == self.begins, f"weight {self.weight}"
        assert not (held and self.ignored and not begins), "a pause that must be ignored"
        self.weight = min(self.weight + 1, LIMIT) if held else max(self.weight - 1, 0)
        self.begins = self.weight == LIMIT and not self.ignored
        self.ignored = self.begins or (self.ignored and self.weight > 0)


class PauseBench:
    """The block with its frames, the peer's pause frames, and the times at which frames began at the MAC."""

    def __init__(self, dut, rng):
        self.dut, self.rng, self.cycle = dut, rng, 0
        self.source = StreamSource(dut, "i", dut.clk, rng=rng)
        self.control = StreamSource(dut, "i_control", dut.clk, rng=rng)
        self.sink = StreamSink(dut, "o", dut.clk, rng=rng)
        self.began, self.counts, self.refused = [], Counter(), []
        cocotb.start_soon(self._watch())

    async def _watch(self):
        dut, first, shown, storms = self.dut, True, None, Storms()
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            offered = int(dut.o__payload.value) if dut.o__valid.value == 1 else None
            assert shown in (None, offered), "what was offered to the MAC was taken back"
            shown = offered if dut.o__ready.value == 0 else None
            if dut.o__valid.value == 1 and dut.o__ready.value == 1:
                if first:
                    self.began.append(self.cycle)
                first = bool(int(dut.o__payload.value) >> 8 * BEAT_BYTES + 6 & 1)
            storms.pass_cycle(held=dut.count_pause_cycles.value == 1, begins=dut.count_pause_storms.value == 1)
            for name in Pause.COUNTS:
                self.counts[name] += int(getattr(dut, f"count_{name}").value)
            if dut.drop__stb.value == 1:
                self.refused.append(Reason(int(dut.drop__reason.value)))

    def configure(self, **fields):
        self.dut.registers__pfc.value = int.from_bytes(abi.PFC_WORD.pack(**fields), "little")

    def send(self, frame):
        for beat in beats(frame):
            self.source.send_nowait(beat)

    def receive(self, frame, error=0):
        """Receive a MAC control frame."""
        for beat in beats(frame, error=error):
            self.control.send_nowait(beat)

    async def frames(self):
        """Return all frames that left, when no more are pending."""
        await self.source.idle()
        self.sink.pause = 0.0
        await ClockCycles(self.dut.clk, 4 * SOON)
        found = []
        while len(self.sink):
            found.append((await receive(self.sink))[0])
        return found


async def start(dut):
    await start_clock(dut)
    dut.network__mac.value = MAC
    dut.high.value, dut.low.value, dut.registers__pfc.value = 0, 1, 0
    bench = PauseBench(dut, random.Random(bench_seed()))
    await ClockCycles(dut.clk, 4)
    return bench


def random_frame(rng):
    return rng.randbytes(rng.choice([60, 64, 65, rng.randint(60, 1500)]))


@cocotb.test()
async def nothing_while_off(dut):
    """While flow control is off, frames pass in the cycle they come in, whatever the peer and the buffer request."""
    bench = await start(dut)
    bench.configure(priority=3, quanta=100)
    dut.high.value, dut.low.value = 1, 0
    bench.receive(pause_frame({3: 0xFFFF}))
    sent = [random_frame(bench.rng) for _ in range(30)]
    for frame in sent:
        bench.send(frame)
    assert await bench.frames() == sent
    assert bench.began[-1] - bench.began[0] == sum(len(beats(frame)) for frame in sent[:-1])
    assert not bench.counts["tx_pauses"] and not bench.counts["pause_cycles"] and bench.counts["rx_pauses"] == 1


@cocotb.test()
async def requests_between_frames(dut):
    """Pauses are whole frames between whole frames; the last one holds the current state of the request."""
    bench = await start(dut)
    rng, sent, asked = bench.rng, [], Counter()
    for _ in range(40):
        priority, quanta = rng.randrange(wire.PRIORITIES), rng.randint(200, 0xFFFF)
        bench.configure(priority=priority, send=1, quanta=quanta)
        bench.sink.pause = rng.choice([0.0, 0.5, 0.9])
        expected, high = [random_frame(rng) for _ in range(rng.randint(0, 6))], 0
        for frame in expected:
            bench.send(frame)
        for _ in range(rng.randint(1, 4)):
            high ^= 1
            dut.high.value, dut.low.value = high, 1 - high
            await ClockCycles(dut.clk, rng.choice([1, 3, 30]))
            dut.high.value = 0      # between both marks nothing changes
            await ClockCycles(dut.clk, rng.choice([1, 3, 30]))
        found = await bench.frames()
        send = {name: pause_frame({priority: value}, src=MAC) for name, value in (("pause", quanta), ("go on", 0))}
        assert [frame for frame in found if frame not in send.values()] == expected
        own = [name for name, frame in send.items() for one in found if one == frame]
        asked.update(own)
        last = next(frame for frame in reversed(found) if frame in send.values())
        assert last == send["pause" if high else "go on"]
        dut.low.value = 1
        await bench.frames()
        sent += expected
    assert min(asked.values()) > 20 and len(sent) > 60, asked
    assert bench.counts["tx_pauses"] >= asked["pause"]


@cocotb.test()
async def requests_again(dut):
    """While the buffer is full, the pause is repeated when half of its time is over; one frame ends it afterwards."""
    bench = await start(dut)
    quanta, times = 100, 6
    bench.configure(priority=5, send=1, quanta=quanta)
    dut.high.value, dut.low.value = 1, 0
    for n in range(times):
        while len(bench.began) <= n:
            await RisingEdge(dut.clk)
    dut.high.value, dut.low.value = 0, 1
    send = [pause_frame({5: value}, src=MAC) for value in (quanta, 0)]
    found = await bench.frames()
    assert found == [send[0]] * times + [send[1]]
    for one, other in zip(bench.began, bench.began[1:times], strict=False):
        assert 0 <= other - one - cycles_of(quanta) // 2 <= SOON
    assert bench.counts["tx_pauses"] == times
    await ClockCycles(dut.clk, cycles_of(quanta))
    assert not len(bench.sink)
    # When requests are switched off, one frame ends the pause.
    dut.high.value, dut.low.value = 1, 0
    await ClockCycles(dut.clk, SOON)
    bench.configure(priority=5, quanta=quanta)
    assert await bench.frames() == send


@cocotb.test()
async def obeys(dut):
    """No frame begins during a pause; one that has begun continues. The newest pause counts, and 0 ends it."""
    bench = await start(dut)
    rng, seen = bench.rng, Counter()
    for _ in range(40):
        priority, quanta = rng.randrange(wire.PRIORITIES), rng.choice([0, 1, 2, rng.randint(20, 100)])
        bench.configure(priority=priority, obey=1)
        times = {k: rng.getrandbits(16) for k in rng.sample(range(wire.PRIORITIES), 3)} | {priority: quanta}
        long, short = rng.randbytes(1500), rng.randbytes(60)
        if early := rng.random() < 0.5:
            bench.send(long)
            await ClockCycles(dut.clk, 4)
        bench.began.clear()
        again = rng.choice([None, 0, 30])
        bench.receive(pause_frame(times))
        if again is not None:
            bench.receive(pause_frame({priority: again}))
        while not bench.counts["rx_pauses"]:
            await RisingEdge(dut.clk)
        at, last = bench.cycle, quanta if again is None else again
        await ClockCycles(dut.clk, SOON)
        bench.send(short)
        assert await bench.frames() == [long] * early + [short]
        held = bench.began[-1] - at
        if last >= 20:
            assert abs(held - cycles_of(last)) <= SOON, (held, last)
        seen["long" if last >= 20 else "short", again is None, early] += 1
        bench.counts.clear()
    assert len(seen) >= 6, seen


@cocotb.test()
async def offered_frame_continues(dut):
    """With a slow MAC, and pauses of both sides at any moment, all frames leave whole and in order."""
    bench = await start(dut)
    rng = bench.rng
    bench.configure(priority=1, obey=1, send=1, quanta=0xFFFF)
    bench.sink.pause = 0.8
    sent = [random_frame(rng) for _ in range(60)]
    for frame in sent:
        bench.send(frame)
    over = cocotb.start_soon(bench.source.idle())
    while not over.done():
        bench.receive(pause_frame({1: rng.choice((1, 5, 20))}))
        dut.high.value = rng.getrandbits(1)
        dut.low.value = 1 - int(dut.high.value)
        await ClockCycles(dut.clk, rng.randrange(10, 40))
    found = await bench.frames()
    own = [frame for frame in found if frame not in sent]
    assert [frame for frame in found if frame in sent] == sent
    assert set(own) <= {pause_frame({1: quanta}, src=MAC) for quanta in (0, 0xFFFF)} and len(own) > 20
    assert bench.counts["pause_cycles"] > 100


@cocotb.test()
async def only_valid_pauses_count(dut):
    """Malformed pause frames are counted; pauses of other priorities have no effect."""
    bench = await start(dut)
    bench.configure(priority=2, obey=1, send=1, quanta=7)
    most = {2: 0xFFFF}
    bad = [(pause_frame(most), 1), (pause_frame(most, dst=MAC), 0), (pause_frame(most, dst=(1 << 48) - 1), 0),
           (pause_frame(most, opcode=1), 0), (pause_frame(most, opcode=0x0100), 0), (pause_frame(most, length=59), 0),
           (pause_frame(most, length=30), 0), (pause_frame(most, length=14), 0), (pause_frame(most, length=65), 0),
           (pause_frame(most, length=1500), 0)]
    bad += [(pause_frame(most, dst=wire.MAC_CONTROL_ADDRESS ^ 1 << bit), 0) for bit in range(48)]
    bad += [(pause_frame(most, opcode=wire.MacControl.PFC ^ 1 << bit), 0) for bit in range(16)]
    bench.rng.shuffle(bad)
    for frame, error in bad:
        bench.receive(frame, error)
        bench.receive(pause_frame({k: 0xFFFF for k in range(wire.PRIORITIES) if k != 2}))
    await bench.control.idle()
    await ClockCycles(dut.clk, SOON)
    assert bench.refused == [Reason.BAD_PAUSE] * len(bad)
    assert not bench.counts["rx_pauses"] and not bench.counts["pause_cycles"]
    # A pause takes effect although a malformed one precedes it; so does its end.
    bench.receive(pause_frame(most))
    await ClockCycles(dut.clk, 10)
    bench.receive(pause_frame({2: 0}))
    await ClockCycles(dut.clk, 10)
    assert bench.counts["rx_pauses"] == 2 and 0 < bench.counts["pause_cycles"] < 20


@cocotb.test()
async def a_storm_is_ignored(dut):
    """A peer that pauses without end stops the card for little more than half of the time.

    The card still sends pauses.
    """
    bench = await start(dut)
    bench.configure(priority=0, obey=1, send=1, quanta=0xFFFF)
    cycles, frame = 10 * LIMIT, bench.rng.randbytes(60)
    for _ in range(cycles):
        bench.send(frame)
    for _ in range(cycles // 16):
        bench.receive(pause_frame({0: 0xFFFF}))
        await ClockCycles(dut.clk, 16)
    held, storms = bench.counts["pause_cycles"], bench.counts["pause_storms"]
    assert 4 * LIMIT <= held <= 6 * LIMIT + 4 * SOON, held
    assert 4 <= storms <= 6, storms
    for _ in range(30):     # the peer pauses for more than half of the time, with interruptions
        bench.receive(pause_frame({0: 0xFFFF}))
        await ClockCycles(dut.clk, bench.rng.randint(100, 300))
        bench.receive(pause_frame({0: 0}))
        await ClockCycles(dut.clk, bench.rng.randint(10, 100))
    assert bench.counts["pause_storms"] > storms + 3
    assert len(bench.began) >= 4 * LIMIT - 4 * SOON
    # While paused, the card still requests pauses.
    while dut.count_pause_cycles.value != 1:
        bench.receive(pause_frame({0: 0xFFFF}))
        await RisingEdge(dut.clk)
    before = len(bench.began)
    dut.high.value, dut.low.value = 1, 0
    await ClockCycles(dut.clk, 2 * SOON)
    assert len(bench.began) == before + 1
    # A pause that ends by itself is obeyed again.
    bench.receive(pause_frame({0: 0}))


@pytest.mark.parametrize("sim", SIMULATORS)
def test_pauses_are_requested_and_obeyed(sim):
    simulate(FlowControl(), name="pause", cases=__file__, sim=sim)
