"""Oracle: a receiver with infinite memory that detects a loss at the time when the packet should have arrived.

Its messages are never lost. No scheme that depends on the receiver to detect losses does better.
"""

from ...machine_code import compiled
from ..path.back import NACK, answer
from ..path.line import AGAIN, ORIGINAL


@compiled
def vanish(w, p):
    """Process the loss of a packet at its time of arrival."""
    if p.kind == ORIGINAL or p.kind == AGAIN:
        answer(w, p.qp, NACK, p.psn, 0, True)
