"""Losses inferred from the order of transmission: what was sent before a packet that came, and did not come, is lost.

This is the most a scheme can know on a path that keeps order: it notices the loss of a retransmission, too, half a
round trip after it was sent. On a path that reorders it takes every late packet for lost.
"""

from ...machine_code import compiled
from ..path.back import NACK, answer
from ..path.line import AGAIN, ORIGINAL

QP = [("came_at", "i8")]


@compiled
def report_gap(w, p):
    """Name to the sender, oldest first, what its QP sent between the newest packet that came and ``p``;
    false if ``p`` is late itself."""
    q, slot = w.qp[p.qp], p.sent_at
    if slot < q.came_at:
        return False
    mask = w.s.flight_mask
    at, after = p.before, slot
    while at > q.came_at and w.s.now - at <= mask:
        w.flight[at & mask].after = after
        at, after = w.flight[at & mask].before, at
    while after != slot:
        one = w.flight[after & mask]
        if one.kind == ORIGINAL or one.kind == AGAIN:
            answer(w, p.qp, NACK, one.psn, 0, True)
        after = one.after
    q.came_at = slot
    return True
