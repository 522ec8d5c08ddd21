"""The write engine in time: :mod:`weft.model.card.write_engine`, compiled. The sentences are there.

A group that somebody waits for has a key: its client, or ``CLIENTS`` and more of the receive path's.
"""

import numpy as np

from ...machine_code import compiled, inlined
from ..timing import BEAT_BYTES, CYCLE_NS
from ..write_engine import (
    ANSWER_BYTES,
    ANSWERED,
    ANSWERS,
    CLIENTS,
    GROUPS_GRANTED,
    MESSAGES,
    NIC,
    PIECES,
    RAW_PACE,
    READ,
    READ_BYTES_ON_LINK,
    STORE_BEATS,
    STORED,
    TICKETS,
    USED,
    WHOLE,
    WRITE_BYTES,
    WRITTEN,
)
from .events import call_at
from .state import GROUPS, LOOK, STORES, TOLD, WRITES
from .table import world

NO_KEY = -1
assert GROUPS_GRANTED == 4 and PIECES == 3


@inlined
def heard(w, c, time, kind):
    """A request reaches the host."""
    card = w.card[c]
    if card.answer_head != card.answer_tail:
        last = w.answers[c, (card.answer_tail - 1) % ANSWERS]
        if time <= last[0]:
            last[1] = int(last[1]) | kind
            return
    if card.answer_tail - card.answer_head == ANSWERS:
        card.answer_head += 1
    last = w.answers[c, card.answer_tail % ANSWERS]
    last[0], last[1] = time + ANSWERED, kind
    card.answer_tail += 1


@compiled
def acknowledge(t, c):
    """When a packet may begin on the link to the card."""
    w = world(t)
    card, now = w.card[c], w.g[0].now
    free = card.down_free
    while card.answer_head != card.answer_tail:
        due, kinds = w.answers[c, card.answer_head % ANSWERS]
        if due > max(free, now):
            break
        free = max(free, due) + ANSWER_BYTES * (1 + ((int(kinds) + 1) >> 1)) / card.pcie_bytes_per_ns
        card.answer_head += 1
    return max(free, now)


@inlined
def look_at(w, c, time):
    """Look again at a time."""
    card = w.card[c]
    if time < card.look_next:
        card.look_next = time
        call_at(w, time, LOOK, c, 0)


@inlined
def beats_of(first, second):
    """Beats of a group of two segments."""
    return -(-first // BEAT_BYTES) - (-second // BEAT_BYTES)


@compiled
def stream(t, c, time, client, address, first, second_address, second, key):
    """The receive path asks for a group, which may be empty: its ticket."""
    w = world(t)
    card = w.card[c]
    advance(w.t, c)
    card.ticket += 1
    if card.group_tail - card.group_head == GROUPS:
        raise OverflowError("too many writes of a compiled card")
    one = w.groups[c, card.group_tail & (GROUPS - 1)]
    one[0], one[1], one[2], one[3], one[4], one[5], one[6], one[7] = (
        time, client, address, first, second_address, second, card.ticket, key)
    card.group_tail += 1
    card.backlog += beats_of(first, second) * CYCLE_NS
    if key != NO_KEY:
        card.keyed += 1
        look_at(w, c, time)
    return card.ticket


@inlined
def ask(w, c, client, time, address, length):
    """Another client asks for a group."""
    one = w.asks[c, client]
    one[0], one[1], one[2] = time, address, length
    look_at(w, c, time)


@compiled
def placed(t, c, ticket):
    """When the last beat of a packet was taken, 0.0 if that is long ago; -1.0 if it was not yet granted."""
    w = world(t)
    card = w.card[c]
    advance(w.t, c)
    if ticket > card.placed:
        return -1.0
    one = w.tickets[c, ticket % TICKETS]
    return one[1] if int(one[0]) == ticket else 0.0


@inlined
def again(w, c):
    """The first time later than now at which something may be granted."""
    return max(w.card[c].grant_free, w.g[0].now + CYCLE_NS)


@inlined
def behind(w, c):
    """How long what was asked for by the stream will still be taken."""
    card = w.card[c]
    return max(0.0, card.last_beat - w.g[0].now) + card.backlog


@compiled
def look(t, c):
    """Grant; whether somebody has to be told."""
    w = world(t)
    card = w.card[c]
    if w.g[0].now != card.look_next:
        return False
    card.look_next = np.inf
    advance(w.t, c)
    return True


@compiled
def look_again(t, c):
    """Look again when somebody may be granted who waits for that."""
    w = world(t)
    card, first = w.card[c], np.inf
    for client in range(CLIENTS):
        if w.asks[c, client, 2] > 0.0:
            first = min(first, w.asks[c, client, 0])
    if card.keyed:
        for place in range(card.group_head, card.group_tail):
            one = w.groups[c, place & (GROUPS - 1)]
            if one[7] != NO_KEY:
                first = min(first, one[0])
    if first != np.inf:
        look_at(w, c, max(first, again(w, c)))


@compiled
def advance(t, c):
    """Grant what may be granted by now."""
    w = world(t)
    card, now = w.card[c], w.g[0].now
    while True:
        first = np.inf
        while card.group_head != card.group_tail:
            one = w.groups[c, card.group_head & (GROUPS - 1)]
            at = max(one[0], card.stream_free)
            if one[3] > 0.0:
                first = max(at, card.raw_free) if int(one[1]) == NIC else at
                break
            if at > now:
                break
            card.stream_free = at + CYCLE_NS
            note(w, c, int(one[6]), max(at, card.placed_at) + CYCLE_NS)
            card.group_head += 1
        asks = first
        for client in range(CLIENTS):
            if w.asks[c, client, 2] > 0.0 and w.asks[c, client, 0] < asks:
                asks = w.asks[c, client, 0]
        at = max(asks, card.grant_free)
        if at > now:
            return
        grant(w, c, at, first <= at)


@inlined
def note(w, c, ticket, at):
    """A packet is placed."""
    card, one = w.card[c], w.tickets[c, ticket % TICKETS]
    card.placed, card.placed_at = ticket, at
    one[0], one[1] = ticket, at


@inlined
def grant(w, c, at, streams):
    """The next client in turn that asks gets its group."""
    card, client = w.card[c], 0
    head = w.groups[c, card.group_head & (GROUPS - 1)]
    from_stream = False
    for step in range(1, CLIENTS + 1):
        client = (card.owner + step) % CLIENTS
        if streams and int(head[1]) == client:
            from_stream = True
            break
        if w.asks[c, client, 2] > 0.0 and w.asks[c, client, 0] <= at:
            break
    card.owner = client
    card.grant_moved, card.grant_beat, card.grant_begun = at, 0.0, 0
    key = client
    if from_stream:
        card.group_head += 1
        segment(w, c, client, int(head[2]), int(head[3]))
        if head[5] > 0.0:
            segment(w, c, client, int(head[4]), int(head[5]))
        key = int(head[7])
    else:
        one = w.asks[c, client]
        length = int(one[2])
        one[2] = 0.0
        segment(w, c, client, int(one[1]), length)
    last = card.grant_beat
    card.grant_free, card.last_beat = card.grant_moved, last
    if from_stream:
        card.stream_free = at + CYCLE_NS
        if client == NIC:
            card.raw_free = at + RAW_PACE
        card.backlog -= beats_of(int(head[3]), int(head[5])) * CYCLE_NS
        note(w, c, int(head[6]), last)
    if key != NO_KEY:
        card.keyed -= from_stream
        if card.told == TOLD:
            raise OverflowError("too many grants of a compiled card")
        told = w.told[c, card.told]
        told[0], told[1], told[2] = key, last, card.write_tail - 1
        card.told += 1


@compiled
def write_segment(t, c, client, address, length):
    """Write a segment of the group that was granted."""
    w = world(t)
    card = w.card[c]
    header = card.message_header if client == MESSAGES else card.write_header
    moved = max(card.grant_moved + CYCLE_NS, card.split_at)
    if not card.grant_begun:
        moved = max(moved, card.ordered0 + CYCLE_NS)
        ordered = max(moved + CYCLE_NS, card.last_beat)
        card.ordered0, card.ordered1, card.ordered2, card.ordered3 = (
            card.ordered1, card.ordered2, card.ordered3, ordered)
        card.grant_beat, card.grant_begun = ordered, 1
    card.grant_moved = card.split_at = moved
    while length:
        count = min(length, card.max_payload - address % card.max_payload)
        address, length = address + count, length - count
        piece(w, c, count)
        cost = (count + header) / card.pcie_bytes_per_ns
        card.up_free = max(card.up_free, card.rq_free - CYCLE_NS) + cost
        heard(w, c, card.up_free + card.pcie_hop, WRITTEN)
        one = w.writes[c, (card.write_tail - 1) & (WRITES - 1)]
        one[2], one[3] = card.up_free, cost


@inlined
def segment(w, c, client, address, length):
    write_segment(w.t, c, client, address, length)


@inlined
def piece(w, c, length):
    """A piece, as a packet on RQ."""
    card = w.card[c]
    card.split_at = max(card.split_at + CYCLE_NS, card.lined0 + CYCLE_NS)
    lined = max(card.split_at + 2 * CYCLE_NS, card.used_at)
    card.lined0, card.lined1, card.lined2 = card.lined1, card.lined2, lined
    beats = -(-length // BEAT_BYTES)
    last = max(card.grant_beat + beats * CYCLE_NS, lined + (beats - 1) * CYCLE_NS + CYCLE_NS - USED)
    stored = last + STORED
    while card.stored_beats + beats > STORE_BEATS:
        one = w.stored[c, card.stored_head & (STORES - 1)]
        stored = max(stored, one[0])
        card.stored_beats -= int(one[1])
        card.stored_head += 1
    last = stored - STORED
    card.used_at = last + USED
    begin = max(last + WHOLE, card.rq_free)
    card.rq_free = begin + -(-(WRITE_BYTES + length) // BEAT_BYTES) * card.pace
    one = w.stored[c, card.stored_tail & (STORES - 1)]
    one[0], one[1] = card.rq_free, beats
    card.stored_tail += 1
    card.stored_beats += beats
    if card.write_tail - card.write_head == WRITES:
        forget(w, c)
        if card.write_tail - card.write_head == WRITES:
            raise OverflowError("too many writes of a compiled card")
    packet = w.writes[c, card.write_tail & (WRITES - 1)]
    packet[0], packet[1] = begin, card.rq_free
    card.write_tail += 1
    card.grant_beat = last


@inlined
def forget(w, c):
    """Packets that are over are forgotten."""
    card, now = w.card[c], w.g[0].now
    while card.write_head != card.write_tail:
        oldest = w.writes[c, card.write_head & (WRITES - 1)]
        if oldest[1] >= now:
            break
        card.wrote, card.link_was = oldest[1], oldest[2]
        card.write_head += 1


@inlined
def read_leaves(w, c, left, at):
    """The read goes over the link when what was before it has left."""
    card = w.card[c]
    card.read_left = max(left, at) + READ_BYTES_ON_LINK / card.pcie_bytes_per_ns
    heard(w, c, card.read_left + card.pcie_hop, READ)
    return card.read_left


@compiled
def let_pass(t, c, at):
    """A read goes out at a time or behind the write that RQ is in then."""
    w = world(t)
    card = w.card[c]
    advance(w.t, c)
    forget(w, c)
    wrote = card.wrote
    for place in range(card.write_head, card.write_tail):
        one = w.writes[c, place & (WRITES - 1)]
        if one[0] > at or (one[0] == at and wrote > card.read_out):
            break
        if at < one[1]:
            at = one[1]
        wrote = one[1]
    free, left = at + card.pace, max(card.link_was, card.read_left)
    card.read_out, behind = at, False
    for place in range(card.write_head, card.write_tail):
        one = w.writes[c, place & (WRITES - 1)]
        begin, end, was = one[0], one[1], one[2]
        if begin < at:
            left = max(left, was)
            continue
        if not behind:
            behind, left = True, read_leaves(w, c, left, at)
        moves = begin < free
        if moves:
            one[0], one[1] = free, free + end - begin
            free = one[1]
            card.rq_free = max(card.rq_free, free)
        left = max(left, one[1] - CYCLE_NS) + one[3]
        if left == was and not moves:
            break
        one[2] = left
        card.up_free = max(card.up_free, left)
    if not behind:
        card.up_free = max(card.up_free, read_leaves(w, c, left, at))
