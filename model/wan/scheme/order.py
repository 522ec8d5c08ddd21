"""Losses inferred from the order of transmission: a missing packet that was sent before a received one is lost.

No scheme can detect more on a path that keeps order: the loss of a retransmission is detected, too, half a round trip
after its transmission. On a path that reorders, every late packet counts as lost.
"""

from ...machine_code import compiled
from ..path.back import NACK, answer
from ..path.line import AGAIN, ORIGINAL

QP = [("came_at", "i8")]


@compiled
def report_gap(w, p):
    """Report to the sender, oldest first, the packets that its QP sent between the newest received one and ``p``.

    Return false if ``p`` itself is late.
    """
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
