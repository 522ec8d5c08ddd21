"""Selective repeat that knows of losses by a timer alone: every packet is sent again when it stays unacknowledged for
``due_slots``, three round trips by default."""

from ...machine_code import compiled
from ..path.line import PROBE
from ..path.score import acknowledge, place
from .deadlines import expect


@compiled
def sent(w, qp, psn):
    """A new packet left."""
    expect(w, qp, psn, 1)


@compiled
def arrive(w, p):
    """A packet at the receiver."""
    if p.kind != PROBE:
        place(w, p.qp, p.psn)
    acknowledge(w, p.qp, p.last != 0 or p.kind == PROBE)
