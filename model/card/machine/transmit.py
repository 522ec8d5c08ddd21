"""The transmit path in time: :mod:`weft.model.card.transmit`, compiled. The sentences are there."""

from ..timing import BEAT_BYTES, CYCLE_NS
from ..transmit import CHOSEN_MAX, FIFO_BEATS
from .compiled import compiled, inlined
from .events import call_at, edge
from .frames import copy_pages, full, new_frame
from .pcie import new_read, read, room
from .state import (
    AGAIN_STREAM,
    BUFFERED,
    DATA_LANE,
    DONE,
    FRAMED,
    GROW,
    HEAD,
    JOBS,
    LATER,
    NEXT,
    PAGE,
    RAW_LANE,
    SEND_STREAM,
    SLOTS,
    WAKE,
)
from .table import world


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
        card.full = chosen(w, c) >= CHOSEN_MAX
        if card.full and lane.later_head != lane.later_tail and (again.active or new.active):
            wake_at(w, c, w.later[c, 1, lane.later_head & (LATER - 1)])
        if card.full or not (again.active or new.active):
            return DONE
        if not again.active:
            first = new.at
        elif not new.active:
            first = again.at
        else:
            first = min(again.at, new.at)
        at = max(card.next_choice, first)
        if at > now:
            wake_at(w, c, at)
            return DONE
        if full(w):
            return GROW
        which = AGAIN_STREAM if again.active and again.at <= at else SEND_STREAM
        stream = w.stream[c, which]
        card.next_choice = at + max(1, stream.segments) * CYCLE_NS
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
def chosen(w, c):
    """How many packets of payload were chosen whose reads have not gone out."""
    lane, now = w.lane[c, DATA_LANE], w.g[0].now
    while lane.later_head != lane.later_tail and w.later[c, 1, lane.later_head & (LATER - 1)] <= now:
        lane.later_head += 1
    return lane.asking_tail - lane.asking_head + lane.later_tail - lane.later_head


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
    first = min(length, PAGE - stream.now_local % PAGE)
    enter(w, c, DATA_LANE, handle, found.bytes, 1 + which, not stream.active, w.g[0].now + card.check,
          stream.now_local % PAGE, first, 0, length - first)


@inlined
def enter(w, c, which, frame, length, ring, last, at, first, first_left, second, second_left):
    """A new job; its payload is in at most two physical pieces, of whose addresses the low bits count."""
    card, lane = w.card[c], w.lane[c, which]
    if lane.tail - lane.head == JOBS:
        raise OverflowError("too many frames of a compiled card wait")
    place = lane.tail & (JOBS - 1)
    job = w.job[c, which, place]
    job.frame, job.length, job.ring, job.last, job.at, job.slots = frame, length, ring, last, at, 0
    job.first, job.first_left, job.second, job.second_left = first, first_left, second, second_left
    most = card.most
    job.open = -(-(first % most + first_left) // most) if first_left else 0
    if second_left:
        job.open += -(-(second % most + second_left) // most)
    lane.tail += 1
    if job.open:
        w.asking[c, which, lane.asking_tail & (JOBS - 1)] = lane.tail - 1
        lane.asking_tail += 1
    else:
        w.done[c, which, place, 0], w.rows[c, which, place, 0], job.slots = at, 0, 1
        frame_next(w.t, c)


@compiled
def ask(t, c, which):
    """Ask for payload as far as there are slots, and room for completions."""
    w = world(t)
    card, lane, now = w.card[c], w.lane[c, which], w.g[0].now
    while lane.asking_head != lane.asking_tail and lane.free:
        number = w.asking[c, which, lane.asking_head & (JOBS - 1)]
        job = w.job[c, which, number & (JOBS - 1)]
        while (job.first_left or job.second_left) and lane.free:
            if not job.first_left:
                job.first, job.first_left, job.second_left = job.second, job.second_left, 0
            address = job.first
            length = min(job.first_left, card.most - address % card.most)
            need0 = -(-(address % 64 + length) // 64)
            need1 = -(-(address % 128 + length) // 128)
            need2 = -(-(address % 256 + length) // 256)
            if not room(card, need0, need1, need2):
                return
            job.first, job.first_left = address + length, job.first_left - length
            slot = job.slots
            if slot == SLOTS:
                raise OverflowError("a frame of a compiled card takes too many reads")
            w.rows[c, which, number & (JOBS - 1), slot] = -(-length // BEAT_BYTES)
            job.slots = slot + 1
            lane.free -= 1
            at = max(job.at, now)
            place = new_read(w, c, length, need0, need1, need2, which, number, slot, -1)
            at = read(w.t, c, max(at, card.room_at), card.room_at > at, place)
            if at > now and which == DATA_LANE:
                if lane.later_tail - lane.later_head == LATER:
                    raise OverflowError("too many reads of a compiled card go out later")
                w.later[c, 1, lane.later_tail & (LATER - 1)] = at
                lane.later_tail += 1
        if not (job.first_left or job.second_left):
            lane.asking_head += 1


@compiled
def answered(t, c, which, number, slot, done):
    """A read of payload is answered."""
    w = world(t)
    card, lane, place = w.card[c], w.lane[c, which], number & (JOBS - 1)
    job = w.job[c, which, place]
    w.done[c, which, place, slot] = done
    job.open -= 1
    if not job.open and lane.head == number and not card.framing:
        frame_next(w.t, c)


@inlined
def ready(w, c, which):
    """Whether the oldest job of a lane has all its bytes."""
    lane = w.lane[c, which]
    return lane.head != lane.tail and w.job[c, which, lane.head & (JOBS - 1)].open == 0


@compiled
def frame_next(t, c):
    """The next frame goes through the framer, if that is idle."""
    w = world(t)
    card = w.card[c]
    if card.framing:
        return
    which = RAW_LANE if card.last_data else DATA_LANE
    if not ready(w, c, which):
        which = 1 - which
        if not ready(w, c, which):
            return
    number = w.lane[c, which].head
    place = number & (JOBS - 1)
    job = w.job[c, which, place]
    card.framing, card.lane, card.last_data = number + 1, which, which == DATA_LANE
    beats = -(-job.length // BEAT_BYTES)
    start = end = max(card.framer_free, w.g[0].now)
    for slot in range(job.slots):
        end = max(end, edge(w.done[c, which, place, slot] + card.payload)) + w.rows[c, which, place, slot] * CYCLE_NS
    end = max(max(end, edge(start) + beats * CYCLE_NS), edge(send_place(w, c, beats)))
    card.framer_free = card.framed_at = end
    card.beats_framed = beats
    call_at(w, end, FRAMED, c, 0)


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
