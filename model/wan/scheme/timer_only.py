"""Selective repeat that detects losses by a timer alone.

Every packet that stays unacknowledged for ``due_slots``, three round trips by default, is sent again.
"""

from ...machine_code import compiled
from .deadlines import expect


@compiled
def sent(w, qp, psn):
    """Process the transmission of a new packet."""
    expect(w, qp, psn, 1)
