"""Independent loss, and its slow drift between two rates.

One draw gives the number of packets to the next loss. With drift, the rate alternates between ``loss`` and
``drift_loss`` after times that are exponential with mean ``drift_slots`` (a measured 350 km path moved between 1e-4 and
1e-2 over minutes: SDR-RDMA, figure 2).
"""

import math

from ...machine_code import compiled, inlined
from .draw import DRIFT, LOSS, geometric, uniform

CONFIG = [("loss", "f8"), ("drift_loss", "f8"), ("drift_slots", "i8")]
STATE = [("loss_left", "i8"), ("loss_now", "f8"), ("drift_at", "i8")]


@compiled
def start(w):
    """Draw the first loss."""
    s = w.s
    s.loss_now = s.loss
    s.loss_left = geometric(w.s.random, LOSS, s.loss_now)
    s.drift_at = s.drift_slots


@inlined
def lost(w):
    """Advance by one packet and return whether it is lost."""
    s = w.s
    if s.drift_slots > 0 and s.now >= s.drift_at:
        s.loss_now = s.drift_loss if s.loss_now == s.loss else s.loss
        s.loss_left = geometric(w.s.random, LOSS, s.loss_now)
        s.drift_at = s.now + 1 - int(s.drift_slots * math.log(1.0 - uniform(w.s.random, DRIFT)))
    s.loss_left -= 1
    if s.loss_left > 0:
        return False
    s.loss_left = geometric(w.s.random, LOSS, s.loss_now)
    return True
