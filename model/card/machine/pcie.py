"""PCIe and host memory in time: :mod:`weft.model.card.pcie`, compiled. The sentences are there."""

from weft.hdl.abi import BLOCK_BYTES

from ..pcie import (
    COMPLETION_BYTES,
    COMPLETION_HEADERS,
    COMPLETION_LINES,
    LONG_BEATS,
    READ_BYTES_ON_LINK,
    TRUST,
    WRITE_BYTES,
)
from ..timing import BEAT_BYTES
from .compiled import compiled, inlined
from .events import call_at, edge
from .state import ANSWER, DRAWS, LATER, WRITES
from .table import world


@inlined
def room(card, need0, need1, need2):
    """Whether a read that may bring so many completions may go out."""
    used, need = card.used0, need0
    if card.trusted == 2:
        used, need = card.used1, need1
    elif card.trusted == 3:
        used, need = card.used2, need2
    return card.used0 + need0 <= COMPLETION_LINES and used + need <= COMPLETION_HEADERS


@inlined
def draw(w, c):
    """The next random number of a host."""
    card = w.card[c]
    card.draw += 1
    return w.draws[c, card.draw - 1]


@inlined
def new_read(w, c, count, need0, need1, need2, lane, job, slot, cookie):
    """The place of a read of payload for a slot of a job, or of lines for Python."""
    place = w.read[0].next
    if place == 0:
        raise OverflowError("too many reads of compiled cards")
    found = w.read[place]
    w.read[0].next = found.next
    found.c, found.bytes, found.need0, found.need1, found.need2 = c, count, need0, need1, need2
    found.lane, found.job, found.slot, found.cookie = lane, job, slot, cookie
    return place


@compiled
def read(t, c, time, waits, place):
    """Ask for a read that there is room for; when the request went out."""
    w = world(t)
    card = w.card[c]
    at = between(w, c, max(edge(time), card.request_free), False)
    card.request_free = at + 2 * card.pace
    if waits:
        drop_later(w, c)
        if card.later_tail - card.later_head == LATER:
            raise OverflowError("too many reads of a compiled card wait")
        w.later[c, 0, card.later_tail & (LATER - 1)] = at
        card.later_tail += 1
    ask_host(w.t, c, at, place)
    return at


@inlined
def drop_later(w, c):
    """Reads that have gone out are forgotten."""
    card, now = w.card[c], w.g[0].now
    while card.later_head != card.later_tail and w.later[c, 0, card.later_head & (LATER - 1)] < now:
        card.later_head += 1


@inlined
def overtake(w, c, time):
    """When a small read goes out before those that wait for room, but the first of them; -1 if there are no more."""
    card = w.card[c]
    drop_later(w, c)
    turn = card.later_head
    while turn != card.later_tail and w.later[c, 0, turn & (LATER - 1)] < time:
        turn += 1
    return w.later[c, 0, (turn + 1) & (LATER - 1)] if turn + 1 < card.later_tail else -1.0


@compiled
def ask_host(t, c, at, place):
    """The request goes out."""
    w = world(t)
    card, found = w.card[c], w.read[place]
    card.used0 += found.need0
    card.used1 += found.need1
    card.used2 += found.need2
    wait = card.read_latency * (1 + card.read_jitter * (-1.0 + 2.0 * draw(w, c)))
    if card.read_tail > 0.0 and draw(w, c) < card.read_tail:
        wait += card.read_tail_ns
    reaches = max(at + card.read_request, link_free(w, c, at) + READ_BYTES_ON_LINK / card.pcie_bytes_per_ns
                  + card.pcie_hop)
    call_at(w, reaches + wait, ANSWER, c, place)


@compiled
def answer(t, c, place):
    """The host's memory answers a read; when its last completion is at the card."""
    w = world(t)
    card, found, now = w.card[c], w.read[place], w.g[0].now
    left, done = found.bytes, 0.0
    step = BLOCK_BYTES if card.split else card.max_payload
    while left:
        piece = min(left, step)
        left -= piece
        card.down_free = max(card.down_free, now) + (piece + card.completion_header) / card.pcie_bytes_per_ns
        start = max(edge(card.down_free + card.pcie_hop), card.completion_free)
        beats = -(-(COMPLETION_BYTES + piece) // BEAT_BYTES)
        done = card.completion_free = start + beats * card.pace
        if card.trusted < 3:
            if beats >= LONG_BEATS[1]:
                card.runs1 = min(TRUST, card.runs1 + 1)
            if beats >= LONG_BEATS[2]:
                card.runs2 = min(TRUST, card.runs2 + 1)
            if (card.runs1 if card.trusted == 1 else card.runs2) == TRUST:
                card.trusted += 1
    card.used0 -= found.need0
    card.used1 -= found.need1
    card.used2 -= found.need2
    return done


@inlined
def release(w, place):
    """A read is over."""
    w.read[place].next = w.read[0].next
    w.read[0].next = place


@inlined
def drop_old(w, c):
    """Writes of packets that are over are forgotten."""
    card, now = w.card[c], w.g[0].now
    while card.write_head != card.write_tail:
        oldest = w.writes[c, card.write_head & (WRITES - 1)]
        if oldest[3] >= now:
            break
        card.link_was = oldest[4]
        card.write_head += 1


@compiled
def write_payload(t, c, time, length):
    """Write the payload of a packet, not before a time; when the card is through with it."""
    w = world(t)
    card = w.card[c]
    drop_old(w, c)
    newest = 0.0
    if card.write_head != card.write_tail:
        newest = w.writes[c, (card.write_tail - 1) & (WRITES - 1)][1]
    at = max(edge(time), newest)
    beats, left = 0, length
    while left > 0:
        beats += -(-(WRITE_BYTES + min(card.max_payload, left)) // BEAT_BYTES)
        left -= card.max_payload
    packet_end = at + beats * card.pace
    granted = at - card.request_ahead
    left = length
    while left > 0:
        piece = min(card.max_payload, left)
        left -= piece
        end = at + -(-(WRITE_BYTES + piece) // BEAT_BYTES) * card.pace
        card.up_free = max(card.up_free, end) + (piece + card.write_header) / card.pcie_bytes_per_ns
        if card.write_tail - card.write_head == WRITES:
            raise OverflowError("too many writes of a compiled card")
        entry = w.writes[c, card.write_tail & (WRITES - 1)]
        entry[0], entry[1], entry[2], entry[3], entry[4] = at, end, granted, packet_end, card.up_free
        card.write_tail += 1
        at = end
    return at


@compiled
def write(t, c, time, length):
    """Write an entry or another small thing, not before a time; when it is in memory."""
    w = world(t)
    card = w.card[c]
    at = card.written_at = max(between(w, c, edge(time), True), card.small_free)
    end = card.small_free = at + -(-(WRITE_BYTES + length) // BEAT_BYTES) * card.pace
    seen = card.small_left = (max(max(end, link_free(w, c, at)), card.small_left)
                              + (length + card.write_header) / card.pcie_bytes_per_ns)
    if card.write_head == card.write_tail or at >= w.writes[c, (card.write_tail - 1) & (WRITES - 1)][1]:
        card.up_free = max(card.up_free, seen)
    card.small_seen = max(card.small_seen, seen + card.pcie_hop)
    return card.small_seen


@inlined
def between(w, c, at, whole):
    """The first time from ``at`` on at which the card's stream is not inside a write of payload."""
    card = w.card[c]
    drop_old(w, c)
    clear = at
    for place in range(card.write_head, card.write_tail):
        one = w.writes[c, place & (WRITES - 1)]
        if whole:
            if one[2] > at:
                break
            clear = max(clear, one[3])
        elif one[0] > at:
            break
        elif one[0] <= at < one[1]:
            return one[1]
    return clear


@inlined
def link_free(w, c, at):
    """When what went out of the card before a time has left the link."""
    card = w.card[c]
    free = card.link_was
    for place in range(card.write_head, card.write_tail):
        one = w.writes[c, place & (WRITES - 1)]
        if one[1] > at:
            break
        free = one[4]
    return free


@inlined
def draws_run_out(w, c, spare):
    """Whether Python has to draw more random numbers first."""
    return w.card[c].draw + spare > DRAWS or w.card[c].line_draw + spare > DRAWS
