"""The transmit path in time: :mod:`weft.model.card.transmit`, compiled. The sentences are there."""

import numpy as np

from weft.hdl.contract.wire import ICRC_BYTES

from ...machine_code import compiled, inlined
from ..pcie import SOURCES, WEIGHED
from ..timing import BEAT_BYTES, CYCLE_NS
from ..transmit import (
    BEHIND,
    CHOSEN_MAX,
    FIFO_BEATS,
    HEADER,
    HELD_AHEAD,
    MERGED,
    RAW_MERGED,
    ROW_AHEAD,
    ROWS_AHEAD,
    SEALED,
    TAKEN,
    THROUGH,
    TRANSLATE,
)
from .events import call_at, edge
from .frame_merge import UNKNOWN, merge_complete, merge_enter
from .frames import copy_pages, full, new_frame
from .pcie import ask_host, first_line, new_read, room, take_line, turn_at, wanted
from .state import (
    AGAIN_STREAM,
    BUFFERED,
    DATA_LANE,
    DONE,
    EMPTY,
    FRAMED,
    FREED,
    GROW,
    HEAD,
    JOBS,
    NEXT,
    PAGE,
    PASSED,
    RAW_FRAMED,
    RAW_LANE,
    SEND_STREAM,
    SLOTS,
    TAGS,
    WAKE,
)
from .table import world
from .write_engine import let_pass


@compiled
def choose(t, c):
    """Take packets; why Python is needed, or DONE."""
    w = world(t)
    card, g = w.card[c], w.g[0]
    again, new, lane = w.stream[c, AGAIN_STREAM], w.stream[c, SEND_STREAM], w.lane[c, DATA_LANE]
    now = g.now
    if card.pending:
        which = card.pending - 1
        card.pending = 0
        take(w.t, c, which)
    if card.full:
        card.next_choice = max(card.next_choice, now)
    while True:
        if not again.active and card.ready1:
            g.a = AGAIN_STREAM
            return HEAD
        if not new.active and card.ready0:
            g.a = SEND_STREAM
            return HEAD
        card.full = lane.asking_tail - lane.asking_head + card.empty_tail - card.empty_head >= CHOSEN_MAX
        if card.full or not (again.active or new.active):
            return DONE
        if not again.active:
            first = new.at
        elif not new.active:
            first = again.at
        else:
            first = min(again.at, new.at)
        at = max(max(card.next_choice, first), card.entered)
        if at > now:
            wake_at(w, c, at)
            return DONE
        if full(w):
            return GROW
        which = AGAIN_STREAM if again.active and again.at <= at else SEND_STREAM
        stream = w.stream[c, which]
        card.next_choice = at + max(1, stream.segments) * CYCLE_NS
        card.entered = max(at, card.translated0) + CYCLE_NS
        card.translated0 = card.translated1
        card.translated1 = max(card.entered + CYCLE_NS, card.translated1 + TRANSLATE)
        stream.now_psn, stream.now_rsn, stream.now_length = stream.psn, stream.rsn, stream.length
        stream.now_local, stream.now_remote, stream.now_last = stream.local, stream.remote, stream.last
        if not stream.known:
            card.pending = which + 1
            g.a = which
            return NEXT
        stream.now_frame = -1
        if stream.last:
            stream.active = 0
        else:
            next_packet(w, stream)
        take(w.t, c, which)


@inlined
def wake_at(w, c, time):
    """Look again at a time."""
    card = w.card[c]
    if not w.g[0].now < card.woken <= time:
        card.woken = time
        call_at(w, time, WAKE, c, 0)


@inlined
def next_packet(w, stream):
    """A stream goes on to the packet at ``cut``."""
    work = w.work[stream.work]
    stream.index += 1
    stream.remote = stream.cut
    end = work.remote + work.length
    stream.cut = min((stream.remote // work.pmtu + 1) * work.pmtu, end)
    stream.length = stream.cut - stream.remote
    stream.local = work.local + stream.remote - work.remote
    stream.psn = (work.psn + stream.index) & 0xFFFFFFFF
    stream.rsn = work.rsn + stream.index
    stream.last = stream.cut == end
    stream.segments = (stream.local % PAGE + stream.length + PAGE - 1) // PAGE if stream.length else 0


@compiled
def take(t, c, which):
    """The packet chosen becomes a frame and a job."""
    w = world(t)
    card, stream = w.card[c], w.stream[c, which]
    work = w.work[stream.work]
    length = stream.now_length
    card.tx_packets += 1
    card.tx_retransmissions += work.retransmit
    card.tx_bytes += length
    handle = stream.now_frame
    if handle < 0:
        handle = new_frame(w, length)
        found = w.frame[handle & (len(w.frame) - 1)]
        if length:
            copy_pages(w, c, work.first_page, stream.now_local, length, w.bytes.ctypes.data + found.at, False)
    found = w.frame[handle & (len(w.frame) - 1)]
    found.work, found.psn, found.rsn, found.last = stream.work, stream.now_psn, stream.now_rsn, stream.now_last
    found.local, found.remote = stream.now_local, stream.now_remote
    found.bytes = work.header + (4 if work.imm and stream.now_last else 0) + length + -length % 4
    work.refs += 1
    if not stream.active:
        work.refs -= 1      # that of the stream
    read = 0 if work.inline else length
    first = min(read, PAGE - stream.now_local % PAGE)
    enter(w, c, DATA_LANE, handle, found.bytes, 1 + which, not stream.active, card.check,
          stream.now_local % PAGE, first, 0, read - first)


@inlined
def enter(w, c, which, frame, length, ring, last, lag, first, first_left, second, second_left):
    """A new job; its payload is in at most two physical pieces, of whose addresses the low bits count."""
    card, lane = w.card[c], w.lane[c, which]
    if lane.tail - lane.head == JOBS:
        raise OverflowError("too many frames of a compiled card wait")
    place = lane.tail & (JOBS - 1)
    job = w.job[c, which, place]
    now = w.g[0].now
    job.frame, job.length, job.ring, job.last, job.at, job.slots = frame, length, ring, last, now + lag, 0
    job.chosen, job.merging = now, 0
    job.first, job.first_left, job.second, job.second_left = first, first_left, second, second_left
    most = card.most
    job.open = -(-(first % most + first_left) // most) if first_left else 0
    if second_left:
        job.open += -(-(second % most + second_left) // most)
    lane.tail += 1
    if job.open:
        w.asking[c, which, lane.asking_tail & (JOBS - 1)] = lane.tail - 1
        lane.asking_tail += 1
        if lane.asking_tail - lane.asking_head == 1:
            want(w, c, which)
    elif lane.asking_tail - lane.asking_head > BEHIND:
        w.empty[c, card.empty_tail & (EMPTY - 1)] = card.jobs_asked + lane.asking_tail - lane.asking_head
        card.empty_tail += 1
    if which == DATA_LANE and lane.tail - lane.head == 1:
        frame_next(w.t, c)


@inlined
def next_read(w, c, which):
    """When a lane has a read to ask for and a slot for it, -1 if it has not."""
    lane = w.lane[c, which]
    if lane.asking_head == lane.asking_tail:
        return -1.0
    at = w.job[c, which, w.asking[c, which, lane.asking_head & (JOBS - 1)] & (JOBS - 1)].at
    if lane.free:
        return at
    if lane.freed_head == lane.freed_tail:
        return -1.0
    return max(at, w.free_at[c, lane.freed_head & (TAGS - 1)])


@inlined
def want(w, c, which):
    """Say when a lane has a read to ask for."""
    at = next_read(w, c, which)
    if at >= 0.0:
        wanted(w, c, at)


@inlined
def first_empty(w, c):
    """The number of the job that the oldest packet without payload before the translation follows, or none: -1."""
    card = w.card[c]
    return w.empty[c, card.empty_head & (EMPTY - 1)] if card.empty_head != card.empty_tail else -1


@inlined
def pass_empty(w, c):
    """A packet without payload has passed the translation."""
    card = w.card[c]
    ahead = first_empty(w, c)
    card.empty_head += 1
    if card.full:
        wake_at(w, c, w.g[0].now + TAKEN)
    if first_empty(w, c) == ahead:
        call_at(w, w.g[0].now + THROUGH, PASSED, c, 0)


@inlined
def take_read(w, c, which):
    """That read."""
    card, lane = w.card[c], w.lane[c, which]
    number = w.asking[c, which, lane.asking_head & (JOBS - 1)]
    job = w.job[c, which, number & (JOBS - 1)]
    if not job.first_left:
        job.first, job.first_left, job.second_left = job.second, job.second_left, 0
    address = job.first
    length = min(job.first_left, card.most - address % card.most)
    job.first, job.first_left = address + length, job.first_left - length
    slot = job.slots
    if slot == SLOTS:
        raise OverflowError("a frame of a compiled card takes too many reads")
    w.rows[c, which, number & (JOBS - 1), slot] = -(-length // BEAT_BYTES)
    job.slots = slot + 1
    if lane.free:
        lane.free -= 1
    else:
        lane.freed_head += 1
    if not (job.first_left or job.second_left):
        lane.asking_head += 1
        card.jobs_asked += which == DATA_LANE
        if card.full:
            wake_at(w, c, w.g[0].now + TAKEN)
        if which == DATA_LANE and first_empty(w, c) - card.jobs_asked == BEHIND:
            call_at(w, w.g[0].now + THROUGH, PASSED, c, 0)
    return new_read(w, c, -(-(address % 4 + length) // 4) * 4, -(-(address % 64 + length) // 64),
                    -(-(address % 128 + length) // 128), -(-(address % 256 + length) // 256), which, number, slot, -1)


@compiled
def take_next(t, c, until):
    """Take what is there until a time, in turns; whether there was something."""
    w = world(t)
    card, first = w.card[c], np.inf
    for step in range(1, SOURCES + 1):
        source = (card.source + step) % SOURCES
        if source:
            at = next_read(w, c, source - 1)
            if at < 0.0:
                continue
        elif card.line_head != card.line_tail:
            at = first_line(w, c)
        else:
            continue
        if at <= until:
            card.source = source
            if source:
                card.held = take_read(w, c, source - 1)
            else:
                card.held = take_line(w.t, c)
            turn_at(w, c, until)
            return True
        first = min(first, at)
    if first != np.inf:
        turn_at(w, c, first)
    return False


@compiled
def turn(t, c):
    """A read is taken, or goes out if there is room for all that it may bring; then the next one is taken."""
    w = world(t)
    card, at = w.card[c], w.g[0].now
    if at != card.next_turn:
        return
    card.next_turn = np.inf
    if not card.held and not take_next(w.t, c, at):
        return
    if at < card.request_free:
        turn_at(w, c, card.request_free)
        return
    found = w.read[card.held]
    if room(w, c, found.need0, found.need1, found.need2, at):
        place, card.held = card.held, 0
        before = card.read_out
        let_pass(w.t, c, max(at, before + card.pace))
        card.request_free = max(at, before) + WEIGHED
        ask_host(w.t, c, place)
        take_next(w.t, c, card.request_free)
    elif card.freed_head != card.freed_tail:
        turn_at(w, c, w.freed[c, card.freed_head & (FREED - 1), 0])


@compiled
def answered(t, c, which, number, slot, done):
    """A read of payload is answered."""
    w = world(t)
    lane, place = w.lane[c, which], number & (JOBS - 1)
    job = w.job[c, which, place]
    w.done[c, which, place, slot] = done
    job.open -= 1
    if not job.open and lane.head == number:
        if which == DATA_LANE:
            frame_next(w.t, c)
        else:
            read_raw(w.t, c)


@compiled
def frame_next(t, c):
    """The first job goes through the framer: its headers at once, the rest when its payload is there."""
    w = world(t)
    card, lane = w.card[c], w.lane[c, DATA_LANE]
    place = lane.head & (JOBS - 1)
    job = w.job[c, DATA_LANE, place]
    beats = -(-job.length // BEAT_BYTES)
    begin = max(card.framer_free + CYCLE_NS, job.chosen + HEADER)
    if not job.merging:
        job.merging = merge_enter(w, c, DATA_LANE, begin + MERGED, UNKNOWN, beats, job.frame, job.length)
    if job.open or card.framing:
        return
    card.framing = 1
    beats, rows, end = -(-(job.length - ICRC_BYTES) // BEAT_BYTES), 0, begin
    for slot in range(job.slots):
        count = w.rows[c, DATA_LANE, place, slot]
        came = edge(w.done[c, DATA_LANE, place, slot] + card.payload)
        end = max(end + CYCLE_NS, came) + (count - 1) * CYCLE_NS
        rows += count
        free_slot(w, c, came, count, end)
    end += (beats - 1 - rows) * CYCLE_NS
    held = edge(send_place(w, c, beats)) - end
    if held > 0.0:
        end += held
        if job.slots:
            card.rows_end += held
            card.slot_free += max(held - HELD_AHEAD, 0.0)
            w.free_at[c, (lane.freed_tail - 1) & (TAGS - 1)] = card.slot_free
    card.framer_free = end
    call_at(w, end, FRAMED, c, 0)
    if job.slots and not lane.free and lane.freed_tail - lane.freed_head == job.slots:
        want(w, c, DATA_LANE)
    merge_complete(w, c, job.merging - 1, end + SEALED)


@inlined
def free_slot(w, c, came, count, end):
    """When a slot with so many rows is free, of which the last one is in the framer at ``end``."""
    card, lane = w.card[c], w.lane[c, DATA_LANE]
    ahead = card.rows_end - (ROWS_AHEAD - count) * CYCLE_NS
    if count > ROWS_AHEAD:
        ahead = end - ROWS_AHEAD * CYCLE_NS
    card.slot_free = max(max(came + (count - 1) * CYCLE_NS, ahead + ROW_AHEAD),
                         card.slot_free + count * CYCLE_NS)
    card.rows_end = end
    w.free_at[c, lane.freed_tail & (TAGS - 1)] = card.slot_free
    lane.freed_tail += 1


@compiled
def read_raw(t, c):
    """The first raw frame goes to the merge; a few beats of raw frames may wait there."""
    w = world(t)
    card, lane = w.card[c], w.lane[c, RAW_LANE]
    place = lane.head & (JOBS - 1)
    job = w.job[c, RAW_LANE, place]
    beats = -(-job.length // BEAT_BYTES)
    if job.merging or job.open or card.raw_behind + beats > max(RAW_MERGED / CYCLE_NS, beats):
        return
    begin = max(card.raw_read + CYCLE_NS, card.raw_passed)
    for slot in range(job.slots):
        begin = max(begin, edge(w.done[c, RAW_LANE, place, slot] + card.raw_payload))
    card.raw_read = begin + (beats - 1) * CYCLE_NS
    card.raw_behind += beats
    job.merging = merge_enter(w, c, RAW_LANE, begin + RAW_MERGED, 0.0, beats, job.frame, job.length)
    call_at(w, card.raw_read, RAW_FRAMED, c, 0)


@inlined
def send_place(w, c, beats):
    """When the send buffer has space for the last beat of a frame."""
    card = w.card[c]
    over, at = card.beats + beats - card.tx_places - FIFO_BEATS, 0.0
    while over > 0 and card.buffered_head != card.buffered_tail:
        one = w.buffered[c, card.buffered_head & (BUFFERED - 1)]
        held = int(one[2])
        if held > over:
            return one[0] + (one[1] - one[0]) * over / held
        card.buffered_head += 1
        card.beats -= held
        over, at = over - held, one[1]
    return at
