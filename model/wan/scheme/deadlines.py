"""Deadlines for packets: a packet that has not arrived by its deadline is sent again. No message names a loss.

All deadlines are equally long, so the queue is in order. The receiver's state decides whether a packet arrived; this
is valid because the deadline is longer than a round trip.
"""

from ...machine_code import compiled
from ..path.queue import DUE, due, pop, push
from ..path.score import seen
from ..path.sender import send_again

CONFIG = [("due_slots", "i8")]


@compiled
def expect(w, qp, first, count):
    """Set the deadline of ``count`` packets from PSN ``first`` on."""
    s, e = w.s, w.entry[push(w, DUE)]
    e.at, e.a, e.b, e.qp = s.now + s.due_slots, first, count, qp


@compiled
def overdue(w):
    """Process expired deadlines: send all packets of an entry again if one of them is missing."""
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
