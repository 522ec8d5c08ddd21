"""What the last run of the main job left, under names that stay: ``reports/sim.json`` and ``captures/``.

A run writes into a folder of its own. What it leaves takes the stable names when it ends, all of it together, so
runs at the same time do not mix; the one that ends last is what the names show.
"""

import contextlib
import os
import shutil

from weft.tb.sim.flow.build import BUILD_ROOT, locked

REPORT = BUILD_ROOT / "reports/sim.json"
CAPTURES = BUILD_ROOT / "captures"
TIMELINE = BUILD_ROOT / "reports/timeline.json"


def publish(report, captures, timeline):
    """Give a run's report, its folder of captures and its timeline the stable names; what the run did not leave is
    taken away.

    Parameters
    ----------
    report, captures, timeline : Path
        They are moved.
    """
    with locked(BUILD_ROOT / ".locks/published"):
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        old = CAPTURES.with_name(f".{CAPTURES.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if CAPTURES.exists():
            CAPTURES.rename(old)
        if captures.exists():
            captures.rename(CAPTURES)
        for left, name in ((report, REPORT), (timeline, TIMELINE)):
            if left.exists():
                os.replace(left, name)
            else:
                name.unlink(missing_ok=True)
        shutil.rmtree(old, ignore_errors=True)


def withdraw():
    """Take the stable names away: the last run left nothing, and an older one's results are not its."""
    with contextlib.suppress(OSError):
        REPORT.unlink(missing_ok=True)
        TIMELINE.unlink(missing_ok=True)
        shutil.rmtree(CAPTURES, ignore_errors=True)
