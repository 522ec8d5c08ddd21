"""Selective repeat that detects losses by a timer alone.

Every packet that stays unacknowledged for ``due_slots``, three round trips by default, is sent again.
"""

from ...machine_code import compiled
from ..path.line import PROBE
from ..path.score import acknowledge, place
from .deadlines import expect


@compiled
def sent(w, qp, psn):
    """Process the transmission of a new packet."""
    expect(w, qp, psn, 1)


@compiled
def arrive(w, p):
    """Process a packet at the receiver."""
    if p.kind != PROBE:
        place(w, p.qp, p.psn)
    acknowledge(w, p.qp, p.last != 0 or p.kind == PROBE)
