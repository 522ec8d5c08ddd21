"""Outages: every packet is lost for a while, once or periodically."""

from ...machine_code import inlined

CONFIG = [("outage_start", "i8"), ("outage_slots", "i8"), ("outage_period", "i8")]
STATE = []


@inlined
def lost(w):
    """Return whether a packet sent now is lost."""
    s = w.s
    since = w.s.now - s.outage_start
    if since < 0:
        return False
    if s.outage_period > 0:
        since %= s.outage_period
    return since < s.outage_slots
