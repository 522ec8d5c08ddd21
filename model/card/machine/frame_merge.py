"""Where payload frames and raw frames become one stream: :mod:`weft.model.card.frame_merge`, compiled. The sentences
are there. A lane's frames have places that count on, from 1 in a job."""

import numpy as np

from ...machine_code import compiled, inlined
from ..timing import CYCLE_NS
from .events import call_at
from .state import DATA_LANE, MERGE, MERGING, PASS, PASS_BITS, RAW_LANE
from .table import world

UNKNOWN = -1.0      # a frame's last beat


@inlined
def merge_enter(w, c, which, first, last, beats, frame, length):
    """A frame comes, behind those of its kind; its place and one."""
    card = w.card[c]
    if which == DATA_LANE:
        place, head = card.merge_tail0, card.merge_head0
        card.merge_tail0 += 1
    else:
        place, head = card.merge_tail1, card.merge_head1
        card.merge_tail1 += 1
    if place - head == MERGING:
        raise OverflowError("too many frames at the merge of a compiled card")
    one = w.merging[c, which, place & (MERGING - 1)]
    one[0], one[1], one[2], one[3], one[4] = first, last, beats, frame, length
    merge_look_at(w, c, first)
    return place + 1


@inlined
def merge_complete(w, c, place, last):
    """It is known when the last beat of a payload frame comes."""
    card = w.card[c]
    w.merging[c, DATA_LANE, place & (MERGING - 1), 1] = last
    if card.holds == 1 + DATA_LANE and card.hold_index == place:
        let_through(w, c)


@inlined
def merge_look_at(w, c, time):
    """Look again at a time."""
    card = w.card[c]
    at = max(max(time, card.merge_free), w.g[0].now)
    if not card.holds and at < card.merge_next:
        card.merge_next = at
        call_at(w, at, MERGE, c, 0)


@inlined
def there(w, c, which, at):
    """Whether a frame of a kind is there."""
    card = w.card[c]
    head, tail = card.merge_head0, card.merge_tail0
    if which == RAW_LANE:
        head, tail = card.merge_head1, card.merge_tail1
    return head != tail and w.merging[c, which, head & (MERGING - 1), 0] <= at


@compiled
def merge_look(t, c):
    """The next frame takes its turn."""
    w = world(t)
    card, now = w.card[c], w.g[0].now
    if now != card.merge_next:
        return
    card.merge_next = np.inf
    which = DATA_LANE if card.merge_turn == RAW_LANE else RAW_LANE
    if not there(w, c, which, now):
        which = card.merge_turn
    if not there(w, c, which, now):
        merge_again(w, c)
        return
    card.merge_turn, card.holds, card.hold_at = which, 1 + which, now
    if which == DATA_LANE:
        card.hold_index = card.merge_head0
        card.merge_head0 += 1
    else:
        card.hold_index = card.merge_head1
        card.merge_head1 += 1
    if w.merging[c, which, card.hold_index & (MERGING - 1), 1] != UNKNOWN:
        let_through(w, c)


@inlined
def let_through(w, c):
    """The frame passes: it goes to the line next."""
    card = w.card[c]
    card.pass_lane, card.pass_index, card.holds = card.holds - 1, card.hold_index, 0
    one = w.merging[c, card.pass_lane, card.pass_index & (MERGING - 1)]
    card.pass_end = max(card.hold_at + (one[2] - 1) * CYCLE_NS, one[1])
    card.merge_free = card.pass_end + CYCLE_NS
    card.program = PASS + (card.program << PASS_BITS)


@inlined
def merge_again(w, c):
    """Look again when a frame is there."""
    card, first = w.card[c], np.inf
    if card.merge_head0 != card.merge_tail0:
        first = w.merging[c, DATA_LANE, card.merge_head0 & (MERGING - 1), 0]
    if card.merge_head1 != card.merge_tail1:
        first = min(first, w.merging[c, RAW_LANE, card.merge_head1 & (MERGING - 1), 0])
    if first != np.inf:
        merge_look_at(w, c, first)
