"""Losses of the path: independent ones with a slow drift of their rate, bursts, outages and a comb, together."""

import math

from ...machine_code import compiled, inlined
from .draw import BURST, DRIFT, FOREVER, LOSS, geometric, uniform

CONFIG = [("loss", "f8"), ("drift_loss", "f8"), ("drift_slots", "i8"), ("burst_enter", "f8"), ("burst_leave", "f8"),
          ("outage_start", "i8"), ("outage_slots", "i8"), ("outage_period", "i8"), ("comb_every", "i8")]
STATE = [("loss_left", "i8"), ("loss_now", "f8"), ("drift_at", "i8"), ("burst_left", "i8"), ("burst_bad", "i8"),
         ("comb_count", "i8")]


@compiled
def _start_independent(w):
    """Draw the first independent loss."""
    s = w.s
    s.loss_now = s.loss
    s.loss_left = geometric(w.s.random, LOSS, s.loss_now)
    s.drift_at = s.drift_slots


@inlined
def _lost_alone(w):
    """Advance the independent losses by one packet; return whether it is lost.

    One draw gives the number of packets to the next loss. With drift, the rate alternates between ``loss`` and
    ``drift_loss`` after times that are exponential with mean ``drift_slots`` (a measured 350 km path moved between
    1e-4 and 1e-2 over minutes: SDR-RDMA, figure 2).
    """
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


@compiled
def _start_bursts(w):
    """Begin in the good state."""
    s = w.s
    s.burst_bad = 0
    s.burst_left = _good_stay(w)


@compiled
def _good_stay(w):
    """Return the length of a stay in the good state, in packets."""
    enter = w.s.burst_enter
    return FOREVER if enter <= 0.0 else geometric(w.s.random, BURST, enter) - 1


@compiled
def _lost_in_burst(w):
    """Advance the bursts (Gilbert-Elliott) by one packet; return whether it is lost.

    A good state loses no packet and a bad state every packet, with a step per packet. The chain is that of
    :class:`weft.model.loss.GilbertElliott`, with the length of each stay drawn at its beginning.
    """
    s = w.s
    while s.burst_left == 0:
        s.burst_bad = 1 - s.burst_bad
        s.burst_left = geometric(w.s.random, BURST, w.s.burst_leave) if s.burst_bad else _good_stay(w)
    s.burst_left -= 1
    return s.burst_bad == 1


@inlined
def _lost_in_outage(w):
    """Return whether an outage, once or periodic, loses a packet sent now."""
    s = w.s
    since = w.s.now - s.outage_start
    if since < 0:
        return False
    if s.outage_period > 0:
        since %= s.outage_period
    return since < s.outage_slots


@inlined
def _lost_in_comb(w):
    """Advance the comb, which loses every k-th packet; return whether it loses this one.

    k = 384 is the worst case for raw nodes of 384 PSNs: one hole in each.
    """
    s = w.s
    s.comb_count += 1
    if s.comb_count < w.s.comb_every:
        return False
    s.comb_count = 0
    return True


@compiled
def start(w):
    """Draw the initial state of the patterns."""
    _start_independent(w)
    _start_bursts(w)


@inlined
def lost(w):
    """Advance every pattern by one packet, and return whether any of them loses it."""
    s = w.s
    gone = _lost_alone(w)
    if s.burst_enter > 0.0 and _lost_in_burst(w):
        gone = True
    if s.outage_slots > 0 and _lost_in_outage(w):
        gone = True
    if s.comb_every > 0 and _lost_in_comb(w):
        gone = True
    return gone
