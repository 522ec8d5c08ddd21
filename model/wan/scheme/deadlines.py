"""Packets with a time at which they must have arrived, else they are sent again: no message names a loss.

All wait for the same time, so the queue is in order. Whether a packet arrived is looked up at the receiver; that is
right as the wait is longer than a round trip.
"""

from ...machine_code import compiled
from ..path.queue import DUE, due, pop, push
from ..path.score import seen
from ..path.sender import send_again

CONFIG = [("due_slots", "i8")]


@compiled
def expect(w, qp, first, count):
    """Look after these packets when the time is over."""
    s, e = w.s, w.entry[push(w, DUE)]
    e.at, e.a, e.b, e.qp = s.now + s.due_slots, first, count, qp


@compiled
def overdue(w):
    """Send again what is due: all packets of an entry if one of them is missing."""
    at = due(w, DUE)
    while at >= 0:
        e = w.entry[at]
        pop(w, DUE)
        missing = False
        for psn in range(e.a, e.a + e.b):
            missing = missing or not seen(w, e.qp, psn)
        if missing:
            w.s.expiries += 1
            for psn in range(e.a, e.a + e.b):
                send_again(w, e.qp, psn, 0)
            expect(w, e.qp, e.a, e.b)
        at = due(w, DUE)
