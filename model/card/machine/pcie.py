"""PCIe and host memory in time: :mod:`weft.model.card.pcie`, compiled. The sentences are there."""

from weft.hdl.abi import BLOCK_BYTES

from ...machine_code import compiled, inlined
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
from .events import call_at, edge
from .state import ANSWER, DRAWS, FREED, LINES, TURN, WRITES
from .table import world


@inlined
def room(w, c, need0, need1, need2, at):
    """Whether a read that may bring so many completions may go out."""
    card = w.card[c]
    while card.freed_head != card.freed_tail:
        one = w.freed[c, card.freed_head & (FREED - 1)]
        if one[0] > at:
            break
        card.used0 -= int(one[1])
        card.used1 -= int(one[2])
        card.used2 -= int(one[3])
        card.freed_head += 1
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
def line(t, c, time, place):
    """Ask for a read of lines, not before a time."""
    w = world(t)
    card = w.card[c]
    if card.line_tail - card.line_head == LINES:
        raise OverflowError("too many lines that a compiled card reads")
    at = card.line_tail
    while at != card.line_head and w.lines[c, (at - 1) & (LINES - 1), 0] > time:
        w.lines[c, at & (LINES - 1), 0] = w.lines[c, (at - 1) & (LINES - 1), 0]
        w.lines[c, at & (LINES - 1), 1] = w.lines[c, (at - 1) & (LINES - 1), 1]
        at -= 1
    w.lines[c, at & (LINES - 1), 0], w.lines[c, at & (LINES - 1), 1] = time, place
    card.line_tail += 1
    wanted(w, c, time)


@inlined
def wanted(w, c, time):
    """Somebody will have a read to ask for at a time."""
    card = w.card[c]
    if not card.held:
        turn_at(w, c, max(time, card.request_free))


@inlined
def turn_at(w, c, time):
    """When the next turn is."""
    card = w.card[c]
    at = edge(max(time, w.g[0].now))
    if at < card.next_turn:
        card.next_turn = at
        call_at(w, at, TURN, c, 0)


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
    if card.freed_tail - card.freed_head == FREED:
        raise OverflowError("too many reads of a compiled card are answered")
    one = w.freed[c, card.freed_tail & (FREED - 1)]
    one[0], one[1], one[2], one[3] = edge(done + card.room), found.need0, found.need1, found.need2
    card.freed_tail += 1
    if card.held and card.freed_tail - card.freed_head == 1:
        turn_at(w, c, max(one[0], card.request_free))
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
    granted = edge(time) - card.request_ahead
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
def write(t, c, time, length, ahead):
    """Write an entry or another small thing, not before a time; when it is in memory."""
    w = world(t)
    card = w.card[c]
    at = card.written_at = max(behind(w, c, edge(time), edge(time - ahead)), card.small_free)
    end = card.small_free = at + -(-(WRITE_BYTES + length) // BEAT_BYTES) * card.pace
    seen = card.small_left = (max(max(end, link_free(w, c, at)), card.small_left)
                              + (length + card.write_header) / card.pcie_bytes_per_ns)
    if card.write_head == card.write_tail or at >= w.writes[c, (card.write_tail - 1) & (WRITES - 1)][1]:
        card.up_free = max(card.up_free, seen)
    card.small_seen = max(card.small_seen, seen + card.pcie_hop)
    return card.small_seen


@inlined
def between(w, c, at):
    """The first time from ``at`` on at which the card's stream is not inside a write of payload."""
    card = w.card[c]
    drop_old(w, c)
    for place in range(card.write_head, card.write_tail):
        one = w.writes[c, place & (WRITES - 1)]
        if one[0] > at:
            break
        if one[0] < at < one[1]:
            return one[1]
    return at


@inlined
def behind(w, c, at, asked):
    """The first time from ``at`` on that is behind the packets that had asked for the write engine before."""
    card, clear = w.card[c], at
    drop_old(w, c)
    for place in range(card.write_head, card.write_tail):
        one = w.writes[c, place & (WRITES - 1)]
        if one[2] > asked:
            break
        clear = max(clear, one[3])
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
