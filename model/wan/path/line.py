"""Line from sender to receiver: one packet a slot, each lost or delivered after its delay.

``flight`` holds the packets in flight, indexed by the slot of transmission. ``bucket`` has, for each future slot, the
first packet that arrives in it; the others of that slot follow as a linked list. A packet records when its QP sent the
packet before it, so that a receiver that relies on the order of transmission can find the packets in a gap (``after``
is scratch space for that).
"""

from ...machine_code import inlined
from .draw import SWAP, uniform
from .loss import lost

ORIGINAL, AGAIN, PROBE, REQUEST = range(4)
FLIGHT = [("psn", "i8"), ("rsn", "i8"), ("before", "i8"), ("after", "i8"), ("sent_at", "i8"), ("qp", "i4"),
          ("next", "i4"), ("bucket", "i4"), ("kind", "u1"), ("lost", "u1"), ("last", "u1")]
CONFIG = [("flight_mask", "i8"), ("sees_losses", "i8"), ("delay", "i8"), ("swap", "f8"), ("swap_slots", "i8"),
          ("paths", "i8"), ("skew_slots", "i8"), ("switch_at", "i8"), ("switch_slots", "i8")]
COUNTS = [("originals", "i8"), ("retransmissions", "i8"), ("lost", "i8"), ("probes", "i8"), ("requests", "i8")]


@inlined
def _delay(w, psn, original):
    """Return the slots from transmission to arrival, one way.

    The causes of reordering: a packet is held back with chance ``swap`` for a time uniform up to ``swap_slots``. An
    original takes path ``psn mod paths``, and path i is longer by ``i / (paths - 1)`` of ``skew_slots``;
    retransmissions take path 0, so that they stay in order. Until ``switch_at`` every packet takes ``switch_slots``
    longer.
    """
    s = w.s
    slots = s.delay
    if s.paths > 1 and original:
        slots += psn % s.paths * s.skew_slots // (s.paths - 1)
    if s.switch_slots > 0 and w.s.now < s.switch_at:
        slots += s.switch_slots
    if s.swap > 0.0 and uniform(w.s.random, SWAP) < s.swap:
        slots += int(uniform(w.s.random, SWAP) * s.swap_slots)
    return slots


@inlined
def transmit(w, qp, psn, rsn, kind, last):
    """Send a packet in this slot; ``last``: it ends a message."""
    s = w.s
    at = s.now & s.flight_mask
    p, q = w.flight[at], w.qp[qp]
    p.qp, p.psn, p.rsn, p.kind, p.last, p.before = qp, psn, rsn, kind, last, q.sent_at
    p.sent_at = s.now
    q.sent_at = s.now
    if kind == ORIGINAL and psn >= q.fresh:
        s.originals += 1
        q.fresh = psn + 1
    elif kind in (ORIGINAL, AGAIN):     # ORIGINAL: after the sender of go-back-N went back
        s.retransmissions += 1
    elif kind == PROBE:
        s.probes += 1
    else:
        s.requests += 1
    p.lost = lost(w)
    s.lost += p.lost
    if p.lost and not s.sees_losses:
        return
    slot = (s.now + _delay(w, psn, kind == ORIGINAL)) & s.flight_mask
    p.next = w.flight[slot].bucket
    w.flight[slot].bucket = at
