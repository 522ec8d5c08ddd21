"""Soaking two real cards: random runs by seed, until enough cycles were simulated. What was run before is kept."""

import sys

from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import tell
from weft.tb.verify.soak.bins import BINS
from weft.tb.verify.soak.campaign import soak

CYCLES = 20_000_000


def measure(progress):
    """The rows; what failed goes to the standard error output, with the command that repeats it."""
    total = soak(cycles=CYCLES, tell=lambda so_far: tell(progress, "soaking", so_far.cycles, CYCLES))
    for failure in total.failures:
        print(failure, file=sys.stderr)
    if total.missing:
        print(f"never met: {'; '.join(total.missing)}", file=sys.stderr)
    return [Row("soak_cycles", "", total.cycles, at_least=CYCLES),
            Row("soak_failures", "", len(total.failures), at_most=0),
            Row("soak_bins_filled", "", len(BINS) - len(total.missing), at_least=len(BINS)),
            Row("soak_requests", "", total.completed)]
