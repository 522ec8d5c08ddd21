"""All patterns of loss together."""

from ...machine_code import compiled, inlined
from . import bursts, comb, iid, outage

CONFIG = iid.CONFIG + bursts.CONFIG + outage.CONFIG + comb.CONFIG
STATE = iid.STATE + bursts.STATE + outage.STATE + comb.STATE



@compiled
def start(w):
    """Draw what the patterns begin with."""
    iid.start(w)
    bursts.start(w)


@inlined
def lost(w):
    """Whether the packet that is sent now is lost; every pattern takes its step, whatever the others say."""
    s = w.s
    gone = iid.lost(w)
    if s.burst_enter > 0.0 and bursts.lost(w):
        gone = True
    if s.outage_slots > 0 and outage.lost(w):
        gone = True
    if s.comb_every > 0 and comb.lost(w):
        gone = True
    return gone
