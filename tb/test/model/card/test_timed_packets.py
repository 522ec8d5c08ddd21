"""Tests of the timing model along the path of a packet: translation, window, merge of reports, choice."""

from types import SimpleNamespace

import pytest

from weft.hdl.contract import abi, wire
from weft.model.card.card import TimedCard
from weft.model.card.receive import ASK_PACE, MARK, STEP, TRANSLATION, WINDOW
from weft.model.card.timing import BEAT_BYTES, CYCLE_NS, TIMING, HostTiming
from weft.model.card.transmit import CHOSEN_MAX, OVERTAKING, THROUGH
from weft.model.functional.memory import HostMemory
from weft.model.functional.window import ACCEPT, PROBE
from weft.model.loop import EventLoop


class _Frame:
    def __init__(self, length):
        self._length = length

    def __len__(self):
        return self._length


@pytest.fixture
def card():
    loop = EventLoop()
    card = TimedCard(HostMemory(), loop, lambda *frame: None, lambda vector: None, host=HostTiming(read_jitter=0),
                     preset="test")
    loop.run(10_000)
    return card


def _judged(card, *lengths):
    """Return the times at which back-to-back frames are checked, from the end of the first one on."""
    seen, path, at = [], card.receive_path, card.loop.now_ns
    path.judge = lambda frame: seen.append(card.loop.now_ns - at)
    path._mac_free = 0.0
    end = at
    for length in lengths:
        path.receive(_Frame(length), end)
        end += (length + wire.LINE_OVERHEAD_BYTES) * 8 / card.line_gbps
    card.loop.run(card.loop.now_ns + 10_000)
    return seen


def test_translation_waiting_for_its_packet_blocks_later_ones(card):
    """A long packet's translation is done long before the packet ends; the next translation is requested then."""
    (alone,), (long, short) = _judged(card, 78), _judged(card, 586, 78)
    assert short - long == TRANSLATION
    on_the_line = (78 + wire.LINE_OVERHEAD_BYTES) * 8 / card.line_gbps
    assert abs(short - 586 * 8 / card.line_gbps - alone) > on_the_line      # it was requested too late
    first, second, third = _judged(card, 586, 78, 586)
    assert second - first == TRANSLATION and third - second < TRANSLATION


def test_translations_start_every_second_cycle(card):
    path, at = card.receive_path, card.loop.now_ns
    answers = [path._judged_at(at, at) for _ in range(4)]
    assert [after - before for before, after in zip(answers, answers[1:], strict=False)] == [ASK_PACE] * 3
    assert answers[0] == at + TRANSLATION
    path._judged_at(answers[-1] + 400, at)      # the translation is done at once, but its packet comes much later
    assert path._judged_at(at, answers[-1] + 800) == answers[-1] + 800 + TRANSLATION    # requested after that packet
    begin = answers[-1] + 2000
    path._judged_at(begin + TRANSLATION + 100, begin)
    assert path._judged_at(begin, begin + ASK_PACE) == begin + ASK_PACE + TRANSLATION + 100     # all waited in between


def test_only_short_packets_wait_for_their_translation(card):
    times = dict.fromkeys((64, 78, 126, 4 * BEAT_BYTES, 1100))
    for length in times:
        times[length], = _judged(card, length)
        card.loop.run(card.loop.now_ns + 10_000)
    assert times[1100] > times[4 * BEAT_BYTES] and times[78] == times[126]
    assert times[64] >= TIMING.asked + CYCLE_NS


@pytest.mark.parametrize(("verdict", "seal", "cycles"), [
    (ACCEPT, True, 3 * STEP + MARK + 1), (ACCEPT, False, 3 * STEP + MARK), (PROBE, True, 3 * STEP + 1)])
def test_packets_wait_while_the_window_slides(card, verdict, seal, cycles):
    path, loop, seen, begin = card.receive_path, card.loop, [], card.loop.now_ns
    slides = SimpleNamespace(verdict=verdict, seal=seal, lost=[(1, 1), (4, 2), (9, 1)])
    stays = SimpleNamespace(verdict=ACCEPT, seal=False, lost=[])

    def judge(frame):
        seen.append((loop.now_ns - begin, frame))
        path._verdict(slides if frame == 1 else stays)

    path._judge = judge
    for frame in range(4):
        path.judge(frame)
    loop.run(begin + 1000)
    free = 2 * WINDOW + cycles * CYCLE_NS
    assert seen == [(0, 0), (WINDOW, 1), (free, 2), (free + WINDOW, 3)]
    path.judge(4)
    assert seen[-1] == (1000, 4)


def test_reports_merge_one_per_cycle_with_events_first(card):
    reporter, loop, seen, begin = card.receive_path.reporter, card.loop, [], card.loop.now_ns
    card.report = lambda entry: seen.append((loop.now_ns - begin, entry))
    for source in ("node", "retire", "node", "retire", "event"):
        reporter.enter(source, source)
    loop.call_in(CYCLE_NS, reporter.enter, "event", "event")
    loop.run(begin + 1000)
    order = ["event", "event", "node", "retire", "node", "retire"]
    assert seen == [(at * CYCLE_NS, source) for at, source in enumerate(order)]
    reporter.enter("retire", "retire")
    loop.run(loop.now_ns)
    assert seen[-1] == (1000, "retire")


def test_empty_packet_holds_a_slot_until_translated(card):
    path, loop, ring = card.transmit_path, card.loop, abi.Ring.SEND
    lane = path._data
    card.pcie.wanted = lambda at: None      # the test takes the reads

    def enter(length):
        path._enter(lane, _Frame(78 + length), ring, False, 0.0, [(0, length)] if length else [])

    for _ in range(OVERTAKING):
        enter(512)
    enter(0)
    assert not lane.empty       # it has passed the translation already
    for _ in range(2):
        enter(512)
    enter(0)
    enter(0)
    assert len(lane.asking) == OVERTAKING + 2 and len(lane.empty) == 2
    assert len(lane.asking) + len(lane.empty) < CHOSEN_MAX
    path.take_read(1)
    loop.run(loop.now_ns + 1000)
    assert len(lane.empty) == 2
    path.take_read(1)       # as many packets are before them as fit after the translation
    left = []
    for _ in range(6):
        loop.run(loop.now_ns + CYCLE_NS)
        left.append(len(lane.empty))
    cycles = int(THROUGH / CYCLE_NS)
    assert left == [2] * (cycles - 1) + [1] * cycles + [0] * (7 - 2 * cycles)


def test_sent_frames_are_freed_without_later_payload(card):
    """A card that only responds sends raw frames alone."""
    path, loop = card.transmit_path, card.loop
    for _ in range(100):
        path._line(b"", 126, loop.now_ns, 2)
        loop.run(loop.now_ns + 100)
    assert len(path._buffered) == 1 and path._beats == 2
