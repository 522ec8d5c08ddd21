"""Results of the last run of the main job under fixed names: ``reports/sim.json`` and ``captures/``.

A run writes into a separate folder. At its end all of its results move to the fixed names together, so that concurrent
runs do not mix their results. The names hold the results of the run that ends last.
"""

import contextlib
import os
import shutil
from pathlib import Path

from weft.tb.sim.flow.build import BUILD_ROOT, locked

REPORT = BUILD_ROOT / "reports/sim.json"
CAPTURES = BUILD_ROOT / "captures"
TIMELINE = BUILD_ROOT / "reports/timeline.json"


def publish(report: Path, captures: Path, timeline: Path) -> None:
    """Move the files and the folder of a run to the fixed names, and remove older results without a successor."""
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


def withdraw() -> None:
    """Remove the published results, so that a failed run does not leave those of an older run."""
    with contextlib.suppress(OSError):
        REPORT.unlink(missing_ok=True)
        TIMELINE.unlink(missing_ok=True)
        shutil.rmtree(CAPTURES, ignore_errors=True)
