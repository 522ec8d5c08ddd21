"""Output of ``weft soak`` and of the benchmark ``soak`` about runs of two cards. Results of earlier runs are cached."""

import sys
import time

from weft.tb.sim.flow import progress
from weft.tb.sim.flow.figures import Row
from weft.tb.verify.soak.bins import BINS
from weft.tb.verify.soak.campaign import soak
from weft.tb.verify.soak.run_cases import run

ENDLESS, BENCHMARK_CYCLES = 1 << 62, 20_000_000


def repeat(seed):
    """Run a seed again and print its result; return the exit status."""
    found = run(seed)
    if "failed" in found:
        print(found["failed"], file=sys.stderr)
        return 1
    print(f"seed {seed}: {found['cycles']:,} cycles, {found['completed']:,} requests")
    for name, count in found["met"].items():
        print(f"{count:9,}  {name}")
    return 0


def report(seconds, **options):
    """Run seed after seed for ``seconds`` seconds and print the result; return the exit status, 1 if a run failed.

    The options are those of :func:`~weft.tb.verify.soak.campaign.soak`.
    """
    began = time.monotonic()

    def report_progress(total):
        print(f"{time.monotonic() - began:6.0f} s: {total.runs} runs, {total.cycles:,} cycles, "
              f"{len(BINS) - len(total.missing)} of {len(BINS)} bins, {len(total.failures)} failed", flush=True)

    total = soak(cycles=ENDLESS, over=lambda: time.monotonic() - began >= seconds, report_progress=report_progress,
                 **options)
    for failure in total.failures:
        print(failure, file=sys.stderr)
    if total.missing:
        print(f"never met: {'; '.join(total.missing)}")
    return bool(total.failures)


def measure(file):
    """Return the rows; print failures on standard error, with the commands that repeat them."""
    def report_progress(so_far):
        progress.report_progress(file, "soaking", so_far.cycles, BENCHMARK_CYCLES)

    total = soak(cycles=BENCHMARK_CYCLES, report_progress=report_progress)
    for failure in total.failures:
        print(failure, file=sys.stderr)
    if total.missing:
        print(f"never met: {'; '.join(total.missing)}", file=sys.stderr)
    return [Row("soak_cycles", "", total.cycles, at_least=BENCHMARK_CYCLES),
            Row("soak_failures", "", len(total.failures), at_most=0),
            Row("soak_bins_filled", "", len(BINS) - len(total.missing), at_least=len(BINS)),
            Row("soak_requests", "", total.completed)]
