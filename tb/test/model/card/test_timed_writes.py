"""Tests of the timing model: the write engine, and the merge of payload frames and raw frames."""

import random

import pytest

from weft.hdl.contract import abi
from weft.hdl.contract.params import preset
from weft.model.card.card import TimedCard
from weft.model.card.frame_merge import PAYLOAD, RAW, Frame, FrameMerge
from weft.model.card.timing import CYCLE_NS, HALF_PS, TIMING, HostTiming
from weft.model.card.write_engine import (
    ANSWER_BYTES,
    ANSWERED,
    CLIENTS,
    NIC,
    READ_BYTES_ON_LINK,
    RINGS,
    STATUS,
    STREAM,
    WriteEngine,
)
from weft.model.functional.memory import HostMemory
from weft.model.loop import EventLoop
from weft.tb.sim.flow.seed import drawn_seed

SEED = drawn_seed(__name__)


class _Asked(WriteEngine):
    """Write engine that records the grants and their times."""

    def __init__(self, loop, **host):
        super().__init__(loop, TIMING, HostTiming(**host))
        self.grants = []

    def _grant(self, at, head):
        super()._grant(at, head)
        self.grants.append((at, self._owner, self._last))


def test_simultaneous_requests_alternate():
    """A report's entry and the next payload request together: payload had the last turn, so the entry is first."""
    loop = EventLoop()
    engine, granted = _Asked(loop), []
    first = engine.stream(100.0, [(0, 1024)])
    second = engine.stream(188.0, [(1024, 1024)])
    engine.ask(RINGS, 188.0, 64, 64, lambda last, packet: granted.append((last, packet)))
    loop.run(1000)
    engine.advance()
    (begin, stream, last), (entry_at, entry, entry_last), (after_at, after, after_last) = engine.grants
    assert (stream, entry, after) == (0, RINGS, 0) and (begin, entry_at, after_at) == (100.0, 188.0, 192.0)
    assert last == 100 + 18 * CYCLE_NS and entry_last == 188 + 3 * CYCLE_NS and after_last == entry_last + 16 * CYCLE_NS
    assert engine.placed(first) == last and engine.placed(second) == after_last
    assert [at for at, _ in granted] == [entry_last]


def test_entry_requested_during_payload_is_written_after_it():
    loop = EventLoop()
    engine, granted = _Asked(loop), []
    ticket = engine.stream(100.0, [(0, 4096)])
    engine.ask(STATUS, 104.0, 64, 64, lambda last, packet: granted.append((last, engine.seen(packet))))
    loop.run(104)
    assert granted and granted[0][0] == engine.placed(ticket) + CYCLE_NS      # known with the grant
    assert granted[0][1] > engine.up_free


def test_few_groups_are_granted_ahead_of_their_data():
    loop = EventLoop()
    engine = _Asked(loop)
    for number in range(12):
        engine.stream(100.0, [(4096 * number, 4096)])
    loop.run(100_000)
    engine.advance()
    ends = [last for _, _, last in engine.grants]
    ahead = [sum(end > at for end in ends[:number]) for number, (at, _, _) in enumerate(engine.grants)]
    assert 1 <= max(ahead) <= 3     # pieces between the splitter and the aligner delay the next ones
    assert ends == sorted(ends) and all(b - a >= 64 * CYCLE_NS for a, b in zip(ends, ends[1:], strict=False))


def test_empty_packet_is_placed_after_earlier_packets():
    loop = EventLoop()
    engine = _Asked(loop)
    engine.stream(100.0, [(0, 1024)])
    empty = engine.stream(120.0, [])
    assert engine.placed(empty) is None
    loop.run(200)
    assert engine.placed(empty) == engine.grants[0][2] + CYCLE_NS


def test_rq_carries_one_write_at_a_time_alternating_with_reads():
    print(f"run it again with WEFT_SEED={SEED}")
    rng, loop = random.Random(SEED), EventLoop()
    engine, seen, reads, moved = _Asked(loop, stall=rng.choice([0, 0.3])), [], [], 0
    asking, last_read = set(), 0.0

    def granted(client):
        def granted(last, packet):
            asking.discard(client)
            seen.append(engine.seen(packet))
        return granted

    for _ in range(600):
        loop.run(loop.now_ns + CYCLE_NS * rng.randrange(1, 30))
        now = loop.now_ns
        if rng.random() < 0.6:
            engine.stream(now + 8, [(rng.randrange(4096), rng.choice([64, 512, 1024, 4000]))],
                          *[NIC, granted(NIC)] * (rng.random() < 0.1))
        client = rng.randrange(NIC + 1, CLIENTS)
        if client not in asking:
            asking.add(client)
            engine.ask(client, now + CYCLE_NS, 64, 64, granted(client))
        if rng.random() < 0.5 and now > last_read:
            engine.let_pass(now)
            moved += engine.read_out > now
            reads.append(engine.read_out)
            last_read = engine.read_out + 2 * CYCLE_NS
        packets = list(engine._packets)
        assert all(end <= begin for (_, end, *_), (begin, *_) in zip(packets, packets[1:], strict=False))
        assert all(not begin < read < end for begin, end, *_ in packets for read in reads[-3:])
    loop.run(loop.now_ns + 100_000)
    assert moved and len(seen) > 300 and seen == sorted(seen) and not asking


def test_write_after_a_read_is_later_on_rq_and_link():
    loop, packets = EventLoop(), []
    engine = _Asked(loop)
    engine.ask(RINGS, 100.0, 64, 64, lambda last, packet: packets.append(packet))
    loop.run(100)
    begin, seen = packets[0][0], engine.seen(packets[0])
    loop.run(begin - CYCLE_NS / 2)
    engine.let_pass(loop.now_ns)
    assert engine.read_out == begin - CYCLE_NS / 2      # its beat ends in the entry's first one
    assert engine.seen(packets[0]) == seen + CYCLE_NS / 2
    # after a long write the entry waits for the link
    loop.run(1000)
    engine.stream(1000.0, [(0, 512)])
    engine.ask(RINGS, 1004.0, 64, 64, lambda last, packet: packets.append(packet))
    loop.run(1004)
    begin, seen = packets[1][0], engine.seen(packets[1])
    loop.run(begin - CYCLE_NS)
    engine.let_pass(loop.now_ns)
    assert engine.read_out == begin
    assert abs(engine.seen(packets[1]) - seen - READ_BYTES_ON_LINK / TIMING.pcie_bytes_per_ns) < HALF_PS


def test_writes_passed_by_a_read_arrive_later():
    loop, came = EventLoop(), []
    engine = _Asked(loop)
    engine.ask(RINGS, 100.0, 64, 64, lambda last, packet: (
        came.append(engine.seen(packet)), engine.then(packet, lambda: came.append(loop.now_ns))))
    loop.run(100)
    begin, _, *_ = engine._packets[0]
    loop.run(begin - CYCLE_NS / 2)
    engine.let_pass(loop.now_ns)
    loop.run(1000)
    assert came[1] == came[0] + CYCLE_NS / 2


def test_host_port_sends_completions_before_requests():
    loop = EventLoop()
    engine, answer = _Asked(loop), ANSWER_BYTES / TIMING.pcie_bytes_per_ns
    for at, asks, answers in ((100, False, 2), (1000, True, 3)):    # an ACK, and credits of each kind
        loop.run(at)
        if asks:
            engine.ask(RINGS, at, 64, 64, lambda last, packet: None)
            loop.run(at)
        engine.let_pass(at)
        due = engine._answers[0][0]
        assert len(engine._answers) == 1 and at + ANSWERED < due <= engine.read_left + TIMING.pcie_hop + 210
        loop.run(due - 1)
        assert engine.acknowledge(0.0) == loop.now_ns and engine.acknowledge(due - 0.5) == due - 0.5
        assert abs(engine.acknowledge(due + 20) - due - 20 - answers * answer) < HALF_PS    # the link was busy
        assert engine.acknowledge(due + 20) == due + 20
    loop.run(2000)
    engine.let_pass(2000)
    due = engine._answers[0][0]
    loop.run(due + answer)
    assert abs(engine.acknowledge(0.0) - due - 2 * answer) < HALF_PS       # the second is on the link
    engine.let_pass(loop.now_ns)
    loop.run(loop.now_ns + 1000)
    assert engine.acknowledge(0.0) == loop.now_ns       # the port has been idle for long


def test_an_entry_of_a_ring_that_was_armed_long_ago_does_not_wait_for_its_doorbell():
    loop, memory = EventLoop(), HostMemory()
    card = TimedCard(memory, loop, lambda *frame: None, lambda vector: None, preset="test")
    buffer, ring, rings = memory.alloc(4096, 4096, True, 4096), abi.Ring.META_REPORT, card.rings
    card.registers.update(meta_report_base=buffer.physical(0), meta_report_log2=6 | 1 << abi.RING_ENABLE_BIT)
    rings.doorbell("meta_report_cons", 1 << abi.ARM_BIT)
    loop.run(1000)
    rings.put(ring, bytes(64))
    loop.run(1008)
    last = card.pcie.writes._last
    assert 1000 < last < 1000 + TIMING.doorbell
    assert list(card.interrupts._pending.values()) == [last + TIMING.interrupt]


def test_raw_frames_request_every_fourth_cycle_and_payload_at_once():
    loop = EventLoop()
    engine = _Asked(loop)
    for client in (NIC, NIC, STREAM, NIC):
        engine.stream(100.0, [(0, 62)], client)
    loop.run(1000)
    engine.advance()
    assert [at for at, *_ in engine.grants] == [100.0, 116.0, 120.0, 132.0]


@pytest.mark.parametrize("granted", [False, True])
def test_a_ring_that_is_armed_with_an_entry_in_memory_does_not_wait_for_the_next_one(granted):
    loop, memory, vectors = EventLoop(), HostMemory(), []
    card = TimedCard(memory, loop, lambda *frame: None, lambda vector: vectors.append(loop.now_ns), preset="test")
    buffer, ring, rings = memory.alloc(4096, 4096, True, 4096), abi.Ring.META_REPORT, card.rings
    card.registers.update(meta_report_base=buffer.physical(0), meta_report_log2=6 | 1 << abi.RING_ENABLE_BIT)
    rings.put(ring, bytes(64))
    loop.run(1000)
    card.pcie.writes.stream(1000.0, [(0, 4096)])
    loop.run(1008)
    rings.put(ring, bytes(64))      # queued after the payload
    if granted:
        loop.run(1020)
    assert rings._storing[ring] == (not granted)
    armed_at = loop.now_ns
    rings.doorbell("meta_report_cons", 1 << abi.ARM_BIT)
    loop.run(1024)
    assert card.pcie.writes._last > 1200
    assert list(card.interrupts._pending.values()) == [armed_at + TIMING.doorbell + TIMING.interrupt]


def test_ring_entries_wait_in_order_and_status_has_the_newest():
    loop, memory = EventLoop(), HostMemory()
    card = TimedCard(memory, loop, lambda *frame: None, lambda vector: None, preset="test")
    buffer, taken = memory.alloc(4096, 4096, True, 4096), []
    for number in range(3):
        card.post(RINGS, buffer.physical(64 * number), bytes([number + 1]) * 64, 40.0, taken.append)
    loop.run(10_000)
    assert [b - a for a, b in zip(taken, taken[1:], strict=False)] == [4 * CYCLE_NS] * 2
    assert [buffer.read(64 * number, 1)[0] for number in range(3)] == [1, 2, 3]
    card.registers["status_block"] = buffer.physical(0)
    written, write = [], memory.write
    memory.write = lambda address, data: (written.append(bytes(data)), write(address, data))
    for ring in (abi.Ring.SEND, abi.Ring.RETRANSMIT, abi.Ring.NIC_TX):      # at once: two writes contain all of them
        card.rings.cons[ring] = 5
        card.rings.notify()
    loop.run(20_000)
    assert 1 <= len(written) <= 2 and written[-1] == card.rings.status()


def test_raw_frame_waits_for_a_started_payload_frame():
    loop, passed = EventLoop(), []
    merge = FrameMerge(loop, lambda job, at: passed.append((job, at)), lambda: True)
    payload = Frame(100.0, None, 18, "payload")
    merge.enter(PAYLOAD, payload)       # its headers are available, its payload is not
    loop.run(150)
    merge.enter(RAW, Frame(160.0, 0.0, 2, "raw"))
    merge.enter(PAYLOAD, Frame(104.0, 5100.0, 18, "next"))
    loop.run(5000)
    assert not passed
    merge.complete(payload, 5000.0)
    loop.run(10_000)
    assert [job for job, _ in passed] == ["payload", "raw", "next"]     # raw frames and payload take turns
    assert [at for _, at in passed] == [5000.0, 5000 + 2 * CYCLE_NS, 5100.0]


def test_card_serves_every_ring():
    assert RINGS + len(abi.CARD_TO_HOST) == STATUS and preset("test").msix_vectors >= len(abi.CARD_TO_HOST)
