"""Combination of all loss patterns."""

from ...machine_code import compiled, inlined
from . import bursts, comb, iid, outage

CONFIG = iid.CONFIG + bursts.CONFIG + outage.CONFIG + comb.CONFIG
STATE = iid.STATE + bursts.STATE + outage.STATE + comb.STATE


@compiled
def start(w):
    """Draw the initial state of the patterns."""
    iid.start(w)
    bursts.start(w)


@inlined
def lost(w):
    """Advance every pattern by one packet, and return whether any of them loses it."""
    s = w.s
    gone = iid.lost(w)
    if s.burst_enter > 0.0 and bursts.lost(w):
        gone = True
    if s.outage_slots > 0 and outage.lost(w):
        gone = True
    if s.comb_every > 0 and comb.lost(w):
        gone = True
    return gone
