"""Pacer of the timing model: times at which the gateware's engine lets packets go."""

from weft.hdl.contract.params import PACE_SLOT_LOG2

from ..functional.pacer import Pacer
from .timing import CYCLE_NS

SLOT_NS = float(1 << PACE_SLOT_LOG2)
VISIT = 6 * CYCLE_NS      # from a QP's place in the queue of those that are due until its packet is at the arbiter
LEFT = 3 * CYCLE_NS       # from the end of a slot until its QP is in that queue


class TimedPacer(Pacer):
    """:class:`Pacer` with the slots of ``hdl/pacing/wheel.py``: a QP leaves its slot when that has ended."""

    def due_at(self, time_ns, now):
        """Return when a packet is at the arbiter whose time is ``time_ns``, if the engine does nothing else."""
        slot = time_ns // SLOT_NS
        due = now if slot < now // SLOT_NS else (slot + 1) * SLOT_NS + LEFT
        return due + VISIT
