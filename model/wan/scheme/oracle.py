"""The oracle: a receiver with infinite memory that knows of a loss when the packet should have come.

Its messages are never lost. No scheme that learns of losses from the receiver does better.
"""

from ...machine_code import compiled
from ..path.back import NACK, answer
from ..path.line import AGAIN, ORIGINAL, PROBE
from ..path.score import acknowledge, place


@compiled
def vanish(w, p):
    """A packet that was lost should be here now."""
    if p.kind == ORIGINAL or p.kind == AGAIN:
        answer(w, p.qp, NACK, p.psn, 0, True)


@compiled
def arrive(w, p):
    """A packet at the receiver."""
    if p.kind != PROBE:
        place(w, p.qp, p.psn)
    acknowledge(w, p.qp, p.last != 0 or p.kind == PROBE)
