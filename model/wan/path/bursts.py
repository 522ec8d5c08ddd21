"""Gilbert-Elliott bursts: a good state without loss and a bad state that loses every packet, with a step per packet.

The chain is that of :class:`weft.model.loss.GilbertElliott`, with the length of each stay drawn at its beginning.
"""

from ...machine_code import compiled
from .draw import BURST, FOREVER, geometric

CONFIG = [("burst_enter", "f8"), ("burst_leave", "f8")]
STATE = [("burst_left", "i8"), ("burst_bad", "i8")]


@compiled
def start(w):
    """Begin in the good state."""
    s = w.s
    s.burst_bad = 0
    s.burst_left = _good(w)


@compiled
def _good(w):
    """Return the length of a stay in the good state, in packets."""
    enter = w.s.burst_enter
    return FOREVER if enter <= 0.0 else geometric(w.s.random, BURST, enter) - 1


@compiled
def lost(w):
    """Advance by one packet and return whether it is lost."""
    s = w.s
    while s.burst_left == 0:
        s.burst_bad = 1 - s.burst_bad
        s.burst_left = geometric(w.s.random, BURST, w.s.burst_leave) if s.burst_bad else _good(w)
    s.burst_left -= 1
    return s.burst_bad == 1
