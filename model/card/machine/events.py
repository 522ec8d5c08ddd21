"""The compiled events: a heap by time and, where times are equal, by the number of the call."""

import math

from ...machine_code import compiled, inlined
from ..timing import CYCLE_NS
from .table import world


@inlined
def edge(time):
    """The first edge of the clock at or after a time."""
    return math.ceil(time / CYCLE_NS) * CYCLE_NS


@inlined
def before(a, b):
    """Whether event ``a`` is before ``b``."""
    return a.time < b.time or (a.time == b.time and a.number < b.number)


@inlined
def set_event(event, time, number, kind, c, a):
    """Fill in an event."""
    event.time, event.number, event.kind, event.c, event.a = time, number, kind, c, a


@inlined
def top(w):
    """Let Python see when the next event is: at once, if a card has to look again at its writes."""
    g = w.g[0]
    if g.looking:
        g.top_time, g.top_number = g.now, -1
    elif g.heap_size:
        g.top_time, g.top_number = w.heap[0].time, w.heap[0].number
    else:
        g.top_time = math.inf


@compiled
def push(t, time, number, kind, c, a):
    """An event with a number of its own."""
    w = world(t)
    g, heap = w.g[0], w.heap
    at = g.heap_size
    if at == len(heap):
        raise OverflowError("too many events of compiled cards")
    g.heap_size = at + 1
    while at:
        above = (at - 1) >> 1
        e = heap[above]
        if e.time < time or (e.time == time and e.number < number):
            break
        set_event(heap[at], e.time, e.number, e.kind, e.c, e.a)
        at = above
    set_event(heap[at], time, number, kind, c, a)


@inlined
def call_at(w, time, kind, c, a):
    """As :meth:`weft.model.link.EventLoop.call_at`."""
    g = w.g[0]
    number = g.number
    g.number = number + 1
    push(w.t, max(time, g.now), number, kind, c, a)


@compiled
def pop(t):
    """Take the first event out: (time, kind, card, a)."""
    w = world(t)
    g, heap = w.g[0], w.heap
    first = heap[0]
    found = first.time, first.kind, first.c, first.a
    size = g.heap_size - 1
    g.heap_size = size
    last = heap[size]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and before(heap[below + 1], heap[below]):
            below += 1
        e = heap[below]
        if not before(e, last):
            break
        set_event(heap[at], e.time, e.number, e.kind, e.c, e.a)
        at = below
    if at != size:
        set_event(heap[at], last.time, last.number, last.kind, last.c, last.a)
    return found
