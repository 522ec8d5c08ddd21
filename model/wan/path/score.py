"""Placement at the receiver: one bit for every PSN, with 64-bit PSNs that do not wrap around.

It belongs to the experiment, not to a card: it gives the goodput and the spurious retransmissions, and shows that
every PSN is placed exactly once.
"""

import numpy as np

from ...machine_code import compiled, inlined
from .back import ACK, answer
from .line import PROBE

QP = [("cum", "i8"), ("cum_reported", "i8")]
CONFIG = [("seen_log2", "i8"), ("ack_every", "i8")]
COUNTS = [("placed", "i8"), ("placed_again", "i8"), ("in_order", "i8"), ("span_peak", "i8")]
_ONE = np.uint64(1)


@inlined
def seen(w, qp, psn):
    """Return whether a PSN was placed; ``psn`` is within the sender's limit of outstanding packets."""
    if psn < w.qp[qp].cum:
        return True
    at = psn & ((1 << w.s.seen_log2) - 1)
    return w.seen[qp, at >> 6] >> np.uint64(at & 63) & _ONE != 0


@compiled
def place(w, qp, psn):
    """Place the payload of a packet; return false if it had been placed before."""
    s, q, mask = w.s, w.qp[qp], (1 << w.s.seen_log2) - 1
    if seen(w, qp, psn):
        s.placed_again += 1
        return False
    at = psn & mask
    w.seen[qp, at >> 6] |= _ONE << np.uint64(at & 63)
    s.placed += 1
    s.span_peak = max(s.span_peak, psn - q.cum)
    while True:
        at = q.cum & mask
        bit = _ONE << np.uint64(at & 63)
        if not w.seen[qp, at >> 6] & bit:
            return True
        w.seen[qp, at >> 6] &= ~bit
        q.cum += 1
        s.in_order += 1


@compiled
def acknowledge(w, qp, at_once):
    """Send the cumulative PSN to the sender: ``at_once``, or when ``ack_every`` packets arrived since the last one."""
    q = w.qp[qp]
    if at_once or q.cum - q.cum_reported >= w.s.ack_every or (q.cum == q.total and q.cum_reported < q.cum):
        q.cum_reported = q.cum
        answer(w, qp, ACK, q.cum, 0, False)


@compiled
def arrive(w, p):
    """Process a packet of a scheme that has no state at the receiver."""
    if p.kind != PROBE:
        place(w, p.qp, p.psn)
    acknowledge(w, p.qp, p.last != 0 or p.kind == PROBE)
