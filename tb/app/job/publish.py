"""Results of the last run of the main job under fixed names: ``reports/sim.json`` and ``captures/``.

A run writes into a separate folder, where its results stay until another run uses it. At its end all of them get the
fixed names together, so that concurrent runs do not mix their results. The names hold the results of the run that ends
last.
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
    """Give the fixed names to a run's report, captures and timeline; remove older results without a successor."""
    with locked(BUILD_ROOT / ".locks/published"):
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        old = CAPTURES.with_name(f".{CAPTURES.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if CAPTURES.exists():
            CAPTURES.rename(old)
        if captures.exists():
            shutil.copytree(captures, CAPTURES, copy_function=_link)
        for left, name in ((report, REPORT), (timeline, TIMELINE)):
            name.unlink(missing_ok=True)
            if left.exists():
                _link(left, name)
        shutil.rmtree(old, ignore_errors=True)


def _link(source: str | Path, target: str | Path) -> None:
    """Give a file a second name; copy it where the file system cannot do that."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def withdraw() -> None:
    """Remove the published results, so that a failed run does not leave those of an older run."""
    with contextlib.suppress(OSError):
        REPORT.unlink(missing_ok=True)
        TIMELINE.unlink(missing_ok=True)
        shutil.rmtree(CAPTURES, ignore_errors=True)
