"""``weft report``: completes the sweeps of the report, draws their figures, and writes the page."""

import json
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from weft.model.wan.experiment import Experiment
from weft.tb.app.report import figures
from weft.tb.app.report.page import page
from weft.tb.app.sweep import plan, run
from weft.tb.app.sweep.plans import PLANS
from weft.tb.app.sweep.table import BadTable
from weft.tb.sim.scenario.compare import REPORT

SHOWN = {"goodput": figures.goodput, "completion": figures.completion, "queue_pairs": figures.memory,
         "stalls": figures.stalls}


def build(output: Path, tables: Path, settings: Sequence[str] = (), *, command: str,
          paths: dict[str, Experiment] | None = None, calibration: Path = REPORT, **workers: Any) -> list[str]:
    """Write the page ``output``; return sentences about problems.

    Parameters
    ----------
    tables
        Folder of the sweeps' tables; finished points in them are not run again.
    settings
        ``NAME=VALUE`` for every sweep, as in ``weft sweep``.
    paths
        Replace those of the table of sizes.
    calibration
        Results of ``weft calibrate``; the file may be missing.
    workers
        ``scheduler`` and ``jobs``, as in :func:`weft.tb.app.sweep.run.complete`.

    Raises
    ------
    BadPlan, BadTable, Unreachable
    """
    compared, shown = _compared(calibration), []
    problems: list[str] = []
    for name, draw in SHOWN.items():
        table = tables / f"{name}.parquet"
        made = shlex.join(["weft", "sweep", "--plan", name, *settings, "--output", str(table)])
        rows, wrong = run.complete(plan.read(PLANS[name], settings), table, command=made, **workers)
        problems += wrong
        if rows:
            shown.append(draw(rows, made))
    shown += [figures.sequence(command), figures.calibration(compared), figures.chosen(paths, command)]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page(shown, version=version("weft-rnic"), command=command), encoding="utf-8")
    return problems


def _compared(path: Path) -> list[figures.Compared] | None:
    """Return the list of :class:`~weft.tb.app.report.figures.Compared` of a calibration; None without a file."""
    if not path.exists():
        return None
    try:
        return [figures.Compared(judges=bool(one["judges"]), cycles=float(one["cycles"]["gateware"]),
                                 time_error=float(one["time_error"]), stall_error=float(one["stall_error"]),
                                 mismatches=len(one["mismatches"])) for one in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadTable(f"{str(path)!r} has no results of weft calibrate ({error!r}); move it away") from None


def report(output: Path, tables: Path, settings: Sequence[str], *, command: str, **workers: Any) -> int:
    """Run :func:`build`, print the problems, and return the exit status."""
    problems = build(output, tables, settings, command=command, **workers)
    print(f"report {output}")
    for problem in problems:
        print(f"weft: {problem}", file=sys.stderr)
    return 1 if problems else 0
