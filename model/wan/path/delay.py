"""Delay of a packet on the path, one way, and the causes of reordering.

Swaps: a packet is held back with chance ``swap`` for a time uniform up to ``swap_slots``. Paths: an original takes
path ``psn mod paths``, and path i is longer by ``i / (paths - 1)`` of ``skew_slots``; retransmissions take path 0, so
that they stay in order. Switch: until ``switch_at`` every packet takes ``switch_slots`` longer.
"""

from ...machine_code import inlined
from .draw import SWAP, uniform

CONFIG = [("delay", "i8"), ("swap", "f8"), ("swap_slots", "i8"), ("paths", "i8"), ("skew_slots", "i8"),
          ("switch_at", "i8"), ("switch_slots", "i8")]


@inlined
def delay(w, psn, original):
    """Return the slots from transmission to arrival."""
    s = w.s
    slots = s.delay
    if s.paths > 1 and original:
        slots += psn % s.paths * s.skew_slots // (s.paths - 1)
    if s.switch_slots > 0 and w.s.now < s.switch_at:
        slots += s.switch_slots
    if s.swap > 0.0 and uniform(w.s.random, SWAP) < s.swap:
        slots += int(uniform(w.s.random, SWAP) * s.swap_slots)
    return slots
