"""PCIe and host memory in time: :mod:`weft.model.card.pcie`, compiled. The sentences are there."""

from weft.hdl.contract.abi import BLOCK_BYTES

from ...machine_code import compiled, inlined
from ..pcie import (
    COMPLETION_BYTES,
    COMPLETION_HEADERS,
    COMPLETION_LINES,
    LINE_CLIENTS,
    LONG_BEATS,
    TRUST,
)
from ..timing import BEAT_BYTES
from .events import call_at, edge
from .state import ANSWER, COMPLETE, DRAWS, FREED, LINES, TURN
from .table import world
from .write_engine import acknowledge


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
        if card.trusted < 3:
            card.runs1 = min(TRUST, card.runs1 + int(one[4]))
            card.runs2 = min(TRUST, card.runs2 + int(one[5]))
            if card.runs1 == TRUST:
                card.trusted = 3 if card.runs2 == TRUST else 2
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
def line(t, c, time, client, place):
    """Ask for a read of lines, not before a time; clients that ask at the same time take turns."""
    w = world(t)
    card = w.card[c]
    if card.line_tail - card.line_head == LINES:
        raise OverflowError("too many lines that a compiled card reads")
    at = card.line_tail
    while at != card.line_head and w.lines[c, (at - 1) & (LINES - 1), 0] > time:
        move_line(w, c, at - 1, at)
        at -= 1
    one = w.lines[c, at & (LINES - 1)]
    one[0], one[1], one[2] = time, place, client
    card.line_tail += 1
    wanted(w, c, time)


@inlined
def move_line(w, c, source, target):
    """A read of lines moves to another place of their queue."""
    old, new = w.lines[c, source & (LINES - 1)], w.lines[c, target & (LINES - 1)]
    new[0], new[1], new[2] = old[0], old[1], old[2]


@inlined
def behind(w, c, at):
    """How many others have their turn before the client of a read of lines."""
    return (int(w.lines[c, at & (LINES - 1), 2]) - w.card[c].line_client - 1) % LINE_CLIENTS


@inlined
def first_line(w, c):
    """When the next read of lines is asked for."""
    return w.lines[c, w.card[c].line_head & (LINES - 1), 0]


@compiled
def take_line(t, c):
    """The read of lines whose turn it is."""
    w = world(t)
    card = w.card[c]
    first, time = card.line_head, w.lines[c, card.line_head & (LINES - 1), 0]
    for at in range(card.line_head + 1, card.line_tail):
        if w.lines[c, at & (LINES - 1), 0] > time:
            break
        if behind(w, c, at) < behind(w, c, first):
            first = at
    one = w.lines[c, first & (LINES - 1)]
    place, card.line_client = int(one[1]), int(one[2])
    for at in range(first, card.line_head, -1):
        move_line(w, c, at - 1, at)
    card.line_head += 1
    return place


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
def ask_host(t, c, place):
    """The request goes out."""
    w = world(t)
    card, found = w.card[c], w.read[place]
    card.used0 += found.need0
    card.used1 += found.need1
    card.used2 += found.need2
    wait = card.read_latency * (1 + card.read_jitter * (-1.0 + 2.0 * draw(w, c)))
    if card.read_tail > 0.0 and draw(w, c) < card.read_tail:
        wait += card.read_tail_ns
    call_at(w, card.read_left + card.pcie_hop + wait, ANSWER, c, place)


@inlined
def crossing(w, c, place):
    """How long the completions of a read take on the link."""
    card, count = w.card[c], w.read[place].bytes
    step = BLOCK_BYTES if card.split else card.max_payload
    return (count + -(-count // step) * card.completion_header) / card.pcie_bytes_per_ns


@inlined
def waits(w, c, place):
    """The host's memory answers a read: whether that waits for the link."""
    card, now = w.card[c], w.g[0].now
    begin = max(now, card.down_reserved)
    card.down_reserved = begin + crossing(w, c, place)
    if begin > now:
        call_at(w, begin, COMPLETE, c, place)
    return begin > now


@compiled
def down(t, c, size):
    """The host sends so many bytes to the card, behind what it sends already: when they begin on the link."""
    w = world(t)
    card, now = w.card[c], w.g[0].now
    begin = max(now, card.down_reserved + card.down_late)
    if begin == now:
        begin = acknowledge(w.t, c)
        card.down_free = begin + size / card.pcie_bytes_per_ns
    card.down_reserved = begin + size / card.pcie_bytes_per_ns
    return begin


@compiled
def complete(t, c, place):
    """Completions cross the link and the card's stream; when the last one is at the card."""
    w = world(t)
    card, found, now = w.card[c], w.read[place], w.g[0].now
    left, done, long1, long2 = found.bytes, 0.0, 0, 0
    step = BLOCK_BYTES if card.split else card.max_payload
    while left:
        piece = min(left, step)
        left -= piece
        begin = acknowledge(w.t, c)
        card.down_free = begin + (piece + card.completion_header) / card.pcie_bytes_per_ns
        start = max(edge(card.down_free + card.pcie_hop), card.completion_free)
        beats = -(-(COMPLETION_BYTES + piece) // BEAT_BYTES)
        done = card.completion_free = start + beats * card.pace
        long1 += beats >= LONG_BEATS[1]
        long2 += beats >= LONG_BEATS[2]
    card.down_late = max(0.0, card.down_free - now - crossing(w, c, place))
    if card.freed_tail - card.freed_head == FREED:
        raise OverflowError("too many reads of a compiled card are answered")
    one = w.freed[c, card.freed_tail & (FREED - 1)]
    one[0], one[1], one[2], one[3] = edge(done + card.room), found.need0, found.need1, found.need2
    one[4], one[5] = long1, long2
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
def draws_run_out(w, c, spare):
    """Whether Python has to draw more random numbers first."""
    return w.card[c].draw + spare > DRAWS or w.card[c].line_draw + spare > DRAWS
