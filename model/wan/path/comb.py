"""Comb loss: every k-th packet is lost. k = 384 is the worst case for raw nodes of 384 PSNs: one hole in each."""

from ...machine_code import inlined

CONFIG = [("comb_every", "i8")]
STATE = [("comb_count", "i8")]


@inlined
def lost(w):
    """Advance by one packet and return whether it is lost."""
    s = w.s
    s.comb_count += 1
    if s.comb_count < w.s.comb_every:
        return False
    s.comb_count = 0
    return True
