"""Figures of fuzzing: random and mutated frames into two drivers over functional cards, and into two RTL cards."""

import sys
from functools import partial

from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.verify.fuzz.functional import fuzz
from weft.tb.verify.fuzz.rtl_cases import fuzz_rtl

FUNCTIONAL, RTL = 1_000_000, 100_000


def measure(progress):
    """Return the rows; print failures to the standard error output, with the seed that repeats them."""
    seed = drawn_seed()

    functional = fuzz(FUNCTIONAL, seed, partial(report_progress, progress, f"fuzzing functional cards, seed {seed}",
                                                total=FUNCTIONAL))
    for failure in functional.failures:
        print(failure, file=sys.stderr)
    try:
        rtl, failed = fuzz_rtl(RTL, seed=seed, progress=progress)["frames"], 0
    except AssertionError as error:
        rtl, failed = 0, 1
        print(error, file=sys.stderr)
    return [Row("fuzz_frames", "", functional.frames, at_least=FUNCTIONAL, conditions=f"functional cards, seed {seed}"),
            Row("fuzz_frames_rtl", "", rtl, at_least=RTL, conditions=f"two real cards, seed {seed}"),
            Row("fuzz_failures", "", len(functional.failures) + failed, at_most=0, conditions=f"both, seed {seed}")]
