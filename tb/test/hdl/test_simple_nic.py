"""Tests of the Simple NIC: raw frames in both directions, byte for byte."""

import os
import random
from collections import Counter
from types import SimpleNamespace

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import DmaRequest
from weft.model.functional.transmit_path import TransmitPath
from weft.tb.sim.flow.simulate import SIMULATORS, bench_seed, simulate
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS, start_clock
from weft.tb.sim.stream.payload import beats, receive
from weft.tb.sim.stream.stream import StreamSink, StreamSource
from weft.tb.test.hdl.pcie.dma_write_sink import DmaWriteSink
from weft.tb.test.rounds import rounds

Reason, Opcode = abi.Reason, abi.NicTxOpcode
PART = os.environ.get("WEFT_PART")
tx_test = cocotb.test(timeout_time=400, timeout_unit="us", skip=PART != "tx")
plain_test = cocotb.test(timeout_time=400, timeout_unit="us", skip=PART != "plain")
rx_test = cocotb.test(timeout_time=4, timeout_unit="ms", skip=PART is not None)
PARAMS = preset("test")


async def watch_strobes(dut, seen, *names):
    while True:
        await RisingEdge(dut.clk)
        for name in names:
            seen[name] = seen.get(name, 0) + int(getattr(dut, name).value)
        if int(dut.drop__stb.value):
            seen.setdefault("refused", []).append(Reason(int(dut.drop__reason.value)))


# ------------------------------------------------------------------------------------- transmit

class FrameMemory:
    """Host memory at the bulk read port: answers groups in order."""

    def __init__(self, dut, rng, pause):
        self.requests = StreamSink(dut, "o_bulk_request", dut.clk, pause=pause, rng=random.Random(rng.random()))
        self.data = StreamSource(dut, "i_bulk", dut.clk, pause=pause, rng=random.Random(rng.random()))
        self.bytes, self.failing = {}, set()
        self.pieces = []
        cocotb.start_soon(self._serve())

    def put(self, address, frame):
        self.bytes.update(enumerate(frame, address))

    async def _serve(self):
        while True:
            frame, last, first = b"", False, None
            count = 0
            while not last:
                request = DmaRequest.from_bits(await self.requests.recv())
                first = request.address if first is None else first
                frame += bytes(self.bytes[request.address + k] for k in range(request.length))
                last, count = request.last, count + 1
            self.pieces.append(count)
            for beat in beats(frame, error=first in self.failing):
                self.data.send_nowait(beat)


@tx_test
async def frames_leave_complete_and_in_order(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    memory = FrameMemory(dut, rng, 0.3)
    source = StreamSource(dut, "i", dut.clk, pause=0.3, rng=random.Random(rng.random()))
    sink = StreamSink(dut, "o", dut.clk, pause=0.3, rng=random.Random(rng.random()))
    seen = {}
    cocotb.start_soon(watch_strobes(dut, seen, "retire"))
    lengths = [14, 59, 60, 61, 64, 65, 0, 13, 4096, 4097, 8192, 9216, 9217, 65535, 42]
    lengths += [rng.randint(14, 200) for _ in range(40)]
    rng.shuffle(lengths)
    expected, refused, at = [], [], 0x1_0000_0003
    for k, length in enumerate(lengths):
        good = 14 <= length <= 9216
        frame = rng.randbytes(length)
        failing = good and k % 9 == 4
        if good:
            memory.put(at, frame)
            if failing:
                memory.failing.add(at)
            expected.append((frame, int(failing)))
        if not good or failing:
            refused.append(Reason.DMA_ERROR if good else Reason.BAD_DESCRIPTOR)
        source.send_nowait(abi.NIC_TX.pack(phase=rng.getrandbits(1), address=at, length=length))
        at += length + rng.randint(1, 5000)
    for frame in expected:
        assert await receive(sink) == frame
    for _ in range(10):
        await RisingEdge(dut.clk)
    assert seen["retire"] == len(lengths)
    assert seen["refused"] == refused and set(refused) == {Reason.DMA_ERROR, Reason.BAD_DESCRIPTOR}
    assert int(dut.idle.value) and max(memory.pieces) == 3


@tx_test
async def several_reads_are_in_flight(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    requests = StreamSink(dut, "o_bulk_request", dut.clk)
    source = StreamSource(dut, "i", dut.clk)
    for k in range(6):
        source.send_nowait(abi.NIC_TX.pack(address=rng.getrandbits(48), length=100 + k))
    for _ in range(30):
        await RisingEdge(dut.clk)
    assert len(requests) == 4


@tx_test
async def one_beat_per_cycle(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    memory = FrameMemory(dut, rng, 0.0)
    source = StreamSource(dut, "i", dut.clk)
    sink = StreamSink(dut, "o", dut.clk)
    frame = rng.randbytes(9216)
    memory.put(0, frame)
    start = get_sim_time("ns")
    for _ in range(3):
        source.send_nowait(abi.NIC_TX.pack(address=0, length=9216))
    for _ in range(3):
        assert await receive(sink) == (frame, 0)
    cycles = (get_sim_time("ns") - start) // CLOCK_PERIOD_NS
    cocotb.log.info("432 beats in %d cycles", cycles)
    assert cycles <= 432 + 16


class Oracle:
    """The functional card's rule for NIC_TX descriptors.

    Attributes
    ----------
    memory : dict of int to bytes
        Frames by their address.
    refused : list of Reason
    """

    def __init__(self, params):
        self.params, self.memory, self.refused, self.counters = params, {}, [], Counter()
        self.path = TransmitPath(SimpleNamespace(
            params=params, memory=SimpleNamespace(read=lambda address, length: self.memory[address][:length]),
            refuse=self.refused.append, counters=self.counters))

    def frames(self, entry):
        """Return the frames of a descriptor as the block sends them: not padded."""
        found = abi.NIC_TX_INLINE.unpack(entry)
        length = found.length if found.opcode == Opcode.INLINE else abi.NIC_TX.unpack(entry).length
        return [frame[:length] for frame in self.path._raw_frames(entry)]


def inline_entry(rng, length, number, opcode):
    layout = abi.NIC_TX_DATA if opcode == Opcode.DATA else abi.NIC_TX_INLINE
    fields = {"opcode": opcode, "number": number, "data": rng.getrandbits(432), "phase": rng.getrandbits(1)}
    return layout.pack(**fields, **({} if layout is abi.NIC_TX_DATA else {"length": length}))


@tx_test
async def inline_frames_are_those_of_the_functional_card(dut):
    """Descriptors of all kinds in any order, most of them correct."""
    rng = random.Random(bench_seed())
    await start_clock(dut)
    memory, oracle = FrameMemory(dut, rng, 0.4), Oracle(PARAMS)
    source = StreamSource(dut, "i", dut.clk, pause=0.2, rng=random.Random(rng.random()))
    sink = StreamSink(dut, "o", dut.clk, pause=0.3, rng=random.Random(rng.random()))
    seen, expected, cases, count = {}, [], Counter(), 0
    cocotb.start_soon(watch_strobes(dut, seen, "retire"))

    def send(entry, case):
        nonlocal count
        before = len(oracle.refused)
        frames = oracle.frames(entry)
        expected.extend(frames)
        cases[case, "sent" if frames else "refused" if len(oracle.refused) > before else "silent"] += 1
        source.send_nowait(entry)
        count += 1

    wanted = [("head", "sent"), ("both", "sent"), ("lost", "refused"), ("number", "refused"), ("length", "refused"),
              ("opcode", "refused"), ("data", "silent"), ("between", "refused"), ("twice", "sent"), ("memory", "sent")]
    for k in rounds(cases, wanted, least=150, most=800):
        case = rng.choice(["head", "both", "both", "both", "lost", "number", "length", "opcode", "between", "twice",
                           "memory", "memory"])
        number = rng.getrandbits(16)
        long = rng.choice([55, 59, 60, 63, 64, 65, 74, 107, 108])
        if case in ("both", "number", "between", "twice"):
            send(inline_entry(rng, 0, number ^ (case == "number") << rng.randrange(16), Opcode.DATA), "data")
        if case in ("between", "memory"):
            address, length = 0x3_0000_0001 + (k << 14), rng.choice([14, 64, 200, 5000])
            frame = oracle.memory[address] = rng.randbytes(length)
            memory.put(address, frame)
            send(abi.NIC_TX.pack(address=address, length=length), "memory")
        if case == "twice":
            send(inline_entry(rng, 0, number, Opcode.DATA), "data")
        if case == "opcode":
            send(inline_entry(rng, 64, number, rng.randrange(3, 16)), case)
        elif case != "memory":
            wrong = rng.choice([0, 13, 109, 127, 128, 1 << 14 | 60, 65535])
            length = {"head": rng.choice([14, 42, 54]), "length": wrong}.get(case, long)
            send(inline_entry(rng, length, number, Opcode.INLINE), case)
    for frame in expected:
        assert await receive(sink) == (frame, 0)
    for _ in range(40):
        await RisingEdge(dut.clk)
    assert int(dut.idle.value) and seen["retire"] == count
    assert seen["refused"] == oracle.refused and set(oracle.refused) == {Reason.BAD_DESCRIPTOR}


@tx_test
async def inline_frame_leaves_at_once_and_in_order(dut):
    """Two cycles after its descriptor; after a frame that is still read, and the next one is requested meanwhile."""
    rng = random.Random(bench_seed())
    await start_clock(dut)
    memory = FrameMemory(dut, rng, 0.0)
    source = StreamSource(dut, "i", dut.clk)
    sink = StreamSink(dut, "o", dut.clk)
    data, head = inline_entry(rng, 0, 7, Opcode.DATA), inline_entry(rng, 74, 7, Opcode.INLINE)
    source.send_nowait(data)
    source.send_nowait(head)
    while not (int(dut.i__ready.value) and int(dut.i__payload.value) == int.from_bytes(head, "little")):
        await RisingEdge(dut.clk)
    start = get_sim_time("ns")
    while not int(dut.o__valid.value):
        await RisingEdge(dut.clk)
    assert (get_sim_time("ns") - start) // CLOCK_PERIOD_NS == 2
    inline = (head[8:62] + data[8:28], 0)
    assert await receive(sink) == inline
    frames = [rng.randbytes(300) for _ in range(2)]
    for k, frame in enumerate(frames):
        memory.put(k << 12, frame)
    memory.data.pause = 1.0
    first, second = (abi.NIC_TX.pack(address=k << 12, length=300) for k in range(2))
    for entry in (first, data, head, second, data, head):
        source.send_nowait(entry)
    for _ in range(20):
        await RisingEdge(dut.clk)
    assert not int(dut.o__valid.value) and source.sent == 2 + 4, "the frame before it was not read"
    memory.data.pause = 0.0
    for frame in ((frames[0], 0), inline, (frames[1], 0), inline):
        assert await receive(sink) == frame


@plain_test
async def card_without_inline_payload_rejects_inline_frames(dut):
    rng = random.Random(bench_seed())
    await start_clock(dut)
    source = StreamSource(dut, "i", dut.clk)
    seen = {}
    cocotb.start_soon(watch_strobes(dut, seen, "retire"))
    for opcode, length in ((Opcode.INLINE, 42), (Opcode.DATA, 0), (Opcode.INLINE, 74), (7, 60)):
        source.send_nowait(inline_entry(rng, length, 1, opcode))
    for _ in range(30):
        await RisingEdge(dut.clk)
    assert seen["retire"] == 4 and seen["refused"] == [Reason.BAD_DESCRIPTOR] * 4
    assert not int(dut.o__valid.value) and not int(dut.o_bulk_request__valid.value)


# -------------------------------------------------------------------------------------- receive

class NicRx:
    """The block with a stand-in for its ring: positions, fullness, entries in order."""

    def __init__(self, dut, rng, *, slots_log2, slot_log2, pause):
        self.dut, self.rng, self.slots = dut, rng, 1 << slots_log2
        self.buffer, self.slot_log2 = 0x55_0000_0080, slot_log2
        self.dma = DmaWriteSink(dut, dut.clk, pause=pause, rng=rng)
        self.info = StreamSource(dut, "i_info", dut.clk, pause=pause, rng=random.Random(rng.random()))
        self.data = StreamSource(dut, "i", dut.clk, pause=pause, rng=random.Random(rng.random()))
        self.prod = self.cons = 0
        self.entries = []           # (entry, groups written before it)
        self.pause = pause
        dut.registers__nic_rx_buffer.value, dut.registers__nic_rx_slot_log2.value = self.buffer, slot_log2
        cocotb.start_soon(self._ring())

    async def consume(self, cons):
        """Consume entries up to ``cons``; the block learns of free slots a cycle after the ring reports them."""
        self.cons = cons
        for _ in range(2):
            await RisingEdge(self.dut.clk)

    async def _ring(self):
        ready = False
        while True:
            self.dut.o_entry__ready.value = int(ready)
            self.dut.slot__position.value = self.prod % self.slots
            self.dut.slot__free.value, self.dut.slot__size.value = self.slots - (self.prod - self.cons), self.slots
            await RisingEdge(self.dut.clk)
            if ready and int(self.dut.o_entry__valid.value):
                payload = int(self.dut.o_entry__payload.value).to_bytes(64, "little")
                entry = abi.NIC_RX.unpack(payload)
                assert abi.NIC_RX.pack(**vars(entry)) == payload, "a reserved bit is not 0"
                self.entries.append((entry, self.dma.beats.received))
                self.prod += 1
                ready = False
            else:
                ready = self.rng.random() >= self.pause and self.prod - self.cons < self.slots

    def send(self, frame, roce=0, host=0):
        self.info.send_nowait(len(frame) | roce << 14 | host << 15)
        for beat in beats(frame):
            self.data.send_nowait(beat)

    async def idle(self):
        await self.data.idle()
        await self.info.idle()
        for _ in range(3):
            await RisingEdge(self.dut.clk)
        while not int(self.dut.idle.value):
            await RisingEdge(self.dut.clk)
        for _ in range(30):
            await RisingEdge(self.dut.clk)


async def setup_rx(dut, rng, **options):
    await start_clock(dut)
    seen = {}
    cocotb.start_soon(watch_strobes(dut, seen, "count_rx_raw_frames"))
    nic = NicRx(dut, rng, **options)
    for _ in range(3):                      # the configuration settles
        await RisingEdge(dut.clk)
    return nic, seen


@rx_test
async def frames_reach_their_slots(dut):
    rng = random.Random(bench_seed())
    nic, seen = await setup_rx(dut, rng, slots_log2=3, slot_log2=10, pause=0.3)
    beats_so_far, delivered, expected_reasons, cases = 0, 0, [], Counter()
    wanted = (Reason.NIC_RING_FULL, Reason.FRAME_TOO_LONG, "slots are kept for packets")
    for k in rounds(cases, wanted, least=80, most=800):
        space = nic.slots - (nic.prod - nic.cons)
        frame = rng.randbytes(rng.choice([14, 60, 64, 65, 500, 1023, 1024, 1025, 2000]))
        roce, host = rng.choice([(0, 0), (1, 0), (0, 1)])
        dut.time_ns.value = k << 33
        nic.send(frame, roce, host)
        await nic.idle()
        if not space or (not roce and space <= nic.slots // 2):
            cases["slots are kept for packets"] += space > 0
            reason = Reason.NIC_RING_FULL
        elif len(frame) > 1024:
            reason = Reason.FRAME_TOO_LONG
        else:
            reason = Reason.OK
            entry, written = nic.entries[delivered]
            beats_so_far += -(-len(frame) // 64)
            assert (entry.length, entry.roce, entry.host, entry.time_ns) == (len(frame), roce, host, k << 33)
            assert written == beats_so_far, "the entry came before its frame"
            slot = nic.buffer + (delivered % nic.slots << nic.slot_log2)
            assert nic.dma.groups[-1] == ([(slot, len(frame))], frame)
            delivered += 1
        assert len(nic.entries) == delivered == len(nic.dma.groups)
        cases[reason] += 1
        expected_reasons += [reason] * (reason is not Reason.OK)
        if rng.random() < 0.1 or not space:
            await nic.consume(rng.randint(nic.cons, nic.prod))
    assert seen["refused"] == expected_reasons
    assert seen["count_rx_raw_frames"] == delivered


@rx_test
async def long_frames_are_split(dut):
    rng = random.Random(bench_seed())
    nic, seen = await setup_rx(dut, rng, slots_log2=2, slot_log2=14, pause=0.1)
    for length in (9216, 4097, 16383, 4096):
        frame = rng.randbytes(length)
        nic.send(frame, 0)
        await nic.idle()
        pieces, data = nic.dma.groups[-1]
        slot = nic.buffer + ((nic.prod - 1) % 4 << 14)
        assert data == frame and len(pieces) == -(-length // 4096)
        assert pieces[0][0] == slot and nic.dma.read(slot, length) == frame
        nic.cons = nic.prod
    assert "refused" not in seen


@rx_test
async def full_ring_never_blocks(dut):
    """Half of the ring is reserved for packets of QPs."""
    rng = random.Random(bench_seed())
    nic, seen = await setup_rx(dut, rng, slots_log2=3, slot_log2=9, pause=0.0)
    start = get_sim_time("ns")
    for _ in range(4):
        nic.send(rng.randbytes(60), 0)
    await nic.idle()
    cocotb.log.info("4 short frames in %d cycles", (get_sim_time("ns") - start) // CLOCK_PERIOD_NS - 30)
    assert nic.prod == 4
    for roce, prod in ((0, 4), (1, 8)):
        refused = len(seen.get("refused", []))
        for _ in range(50):
            nic.send(rng.randbytes(rng.randint(60, 400)), roce)
        await nic.idle()
        assert seen["refused"][refused:] == [Reason.NIC_RING_FULL] * (50 + 4 - prod if roce else 50)
        assert nic.prod == prod
    await nic.consume(8)
    nic.send(b"x" * 60, 0)
    await nic.idle()
    assert nic.prod == 9 and nic.entries[-1][0].roce == 0


@rx_test
async def slots_are_taken_ahead(dut):
    """While a frame is written, later frames already have distinct slots, and no more slots than there are."""
    rng = random.Random(bench_seed())
    nic, seen = await setup_rx(dut, rng, slots_log2=3, slot_log2=10, pause=0.2)
    sent = []
    for _ in range(150):
        kind = rng.choice(["roce", "host", "other"])
        sent.append((rng.randbytes(rng.choice([60, 64, 300, 1000, 1024, 1025])), kind == "roce", kind == "host"))
        nic.send(*sent[-1])
    read, left, half_kept = [], iter(sent), 0

    def read_all():
        """Compare frames in their slots, which keep them until they are returned, with the sent ones."""
        while nic.cons < nic.prod:
            entry, _ = nic.entries[nic.cons]
            frame = nic.dma.read(nic.buffer + (nic.cons % nic.slots << nic.slot_log2), entry.length)
            read.append((frame, bool(entry.roce), bool(entry.host)))
            assert read[-1] in left, "a frame that was not sent, or not in order"
            nic.cons += 1

    while nic.info._queue or nic.data._queue:
        await RisingEdge(dut.clk)
        taken = nic.prod - nic.cons
        half_kept += taken > nic.slots // 2
        if rng.random() < 0.02 or taken == nic.slots:
            read_all()
    await nic.idle()
    read_all()
    assert len(read) == nic.prod == seen["count_rx_raw_frames"]
    assert len(read) + len(seen["refused"]) == len(sent) and half_kept
    assert set(seen["refused"]) == {Reason.NIC_RING_FULL, Reason.FRAME_TOO_LONG}


@rx_test
async def line_rate(dut):
    """Packets of 1024 and of 4096 bytes arrive at line rate, with several slots open at a time."""
    rng = random.Random(bench_seed())
    nic, seen = await setup_rx(dut, rng, slots_log2=6, slot_log2=13, pause=0.0)
    for size, count in ((4096 + 62, 12), (1024 + 62, 20)):
        start = nic.prod
        frames = [rng.randbytes(size) for _ in range(count)]
        for frame in frames:
            nic.send(frame, host=1)
        while not int(dut.o_data__valid.value):
            await RisingEdge(dut.clk)
        begin = get_sim_time("ns")
        while nic.prod < start + count:
            await RisingEdge(dut.clk)
        cycles = (get_sim_time("ns") - begin) // CLOCK_PERIOD_NS
        cocotb.log.info("%d frames of %d beats in %d cycles", count, -(-size // 64), cycles)
        assert cycles <= count * -(-size // 64) + 4
        assert [data for _, data in nic.dma.groups[-count:]] == frames
        nic.cons = nic.prod
    assert "refused" not in seen
    # Nothing is consumed: four frames have requested a slot, no fifth one.
    groups, infos = len(nic.dma.groups), nic.info.sent
    nic.dma.beats.pause = 1.0
    for _ in range(6):
        nic.send(rng.randbytes(100), host=1)
    for _ in range(60):
        await RisingEdge(dut.clk)
    assert nic.info.sent == infos + 4 and len(nic.dma.groups) == groups
    nic.dma.beats.pause = 0.0
    await nic.idle()
    assert len(nic.dma.groups) == groups + 6


@rx_test
async def info_is_taken_after_the_request(dut):
    """Otherwise the payload after the frame could be granted before it, and both would wait for ever."""
    await start_clock(dut)
    dut.registers__nic_rx_slot_log2.value = 9
    dut.slot__free.value = dut.slot__size.value = 4
    for _ in range(3):                      # the configuration settles
        await RisingEdge(dut.clk)
    dut.i_info__payload.value, dut.i_info__valid.value = 64, 1
    for _ in range(20):
        await RisingEdge(dut.clk)
        assert not int(dut.i_info__ready.value)
    assert int(dut.o_request__valid.value)
    dut.o_request__ready.value = 1
    await RisingEdge(dut.clk)
    assert not int(dut.i_info__ready.value)
    await RisingEdge(dut.clk)
    assert int(dut.i_info__ready.value) and not int(dut.o_request__valid.value)


@pytest.mark.parametrize("sim", SIMULATORS)
def test_raw_frames_are_sent(sim):
    from weft.hdl.simple_nic import SimpleNicTx
    simulate(SimpleNicTx(PARAMS), name="simple_nic_tx", cases=__file__, sim=sim, env={"WEFT_PART": "tx"})


@pytest.mark.parametrize("sim", SIMULATORS)
def test_raw_frames_are_sent_without_inline_payload(sim):
    from weft.hdl.simple_nic import SimpleNicTx
    simulate(SimpleNicTx(PARAMS.with_(inline_bytes=0)), name="simple_nic_plain", cases=__file__, sim=sim,
             env={"WEFT_PART": "plain"})


@pytest.mark.parametrize("sim", SIMULATORS)
def test_raw_frames_arrive(sim):
    from weft.hdl.simple_nic import SimpleNicRx
    simulate(SimpleNicRx(PARAMS), name="simple_nic_rx", cases=__file__, sim=sim)
