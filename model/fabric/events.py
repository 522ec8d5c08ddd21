"""Events of the simulation: a binary heap by time; events at equal times run in the order of their registration."""

from ..machine_code import compiled, inlined

SENT, ARRIVED, PACED, EXPIRED, BACKGROUND, LINK, PAUSE = range(7)
EVENT = [("at", "f8"), ("number", "i8"), ("kind", "i4"), ("index", "i4")]
STATE = [("now", "f8"), ("events", "i8"), ("events_number", "i8")]


@inlined
def _before(a, b):
    return a.at < b.at or (a.at == b.at and a.number < b.number)


@inlined
def _move(to, source):
    to.at, to.number, to.kind, to.index = source.at, source.number, source.kind, source.index


@compiled
def schedule(w, at, kind, index):
    """Add an event; the heap has space for all that can be pending."""
    s, heap = w.s, w.event
    spare = heap[len(heap) - 1]
    spare.at, spare.number, spare.kind, spare.index = at, s.events_number, kind, index
    s.events_number += 1
    i = s.events
    s.events += 1
    while i > 0 and _before(spare, heap[(i - 1) >> 1]):
        _move(heap[i], heap[(i - 1) >> 1])
        i = (i - 1) >> 1
    _move(heap[i], spare)


@compiled
def remove_first(w):
    """Remove the earliest event, which is ``w.event[0]``."""
    s, heap = w.s, w.event
    s.events -= 1
    last, i = heap[s.events], 0
    while True:
        child = 2 * i + 1
        if child >= s.events:
            break
        if child + 1 < s.events and _before(heap[child + 1], heap[child]):
            child += 1
        if not _before(heap[child], last):
            break
        _move(heap[i], heap[child])
        i = child
    _move(heap[i], last)
