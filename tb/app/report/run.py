"""``weft report``: completes the sweeps of the report, draws their figures, and writes the page."""

import json
import shlex
import sys
from importlib.metadata import version

from weft.tb.app.report import figures
from weft.tb.app.report.page import page
from weft.tb.app.sweep import plan, run
from weft.tb.app.sweep.plans import PLANS
from weft.tb.app.sweep.table import BadTable
from weft.tb.sim.scenario.compare import REPORT

SHOWN = {"goodput": figures.goodput, "completion": figures.completion, "queue_pairs": figures.memory,
         "stalls": figures.stalls}


def build(output, tables, settings=(), *, command, paths=None, calibration=REPORT, **workers):
    """Write the page ``output``; return sentences about problems.

    Parameters
    ----------
    tables : Path
        Folder of the sweeps' tables; finished points in them are not run again.
    settings : list of str
        ``NAME=VALUE`` for every sweep, as in ``weft sweep``.
    paths : dict of Experiment, optional
        Replace those of the table of sizes.
    calibration : Path
        Results of ``weft calibrate``; the file may be missing.
    workers
        ``scheduler`` and ``jobs``, as in :func:`weft.tb.app.sweep.run.complete`.

    Raises
    ------
    BadPlan, BadTable, Unreachable
    """
    compared = _compared(calibration)
    shown, problems = [], []
    for name, draw in SHOWN.items():
        table = tables / f"{name}.parquet"
        made = shlex.join(["weft", "sweep", "--plan", name, *settings, "--output", str(table)])
        rows, wrong = run.complete(plan.read(PLANS[name], list(settings)), table, command=made,
                                   **workers)
        problems += wrong
        if rows:
            shown.append(draw(rows, made))
    shown += [figures.sequence(command), figures.calibration(compared), figures.chosen(paths, command)]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page(shown, version=version("weft-rnic"), command=command), encoding="utf-8")
    return problems


def _compared(path):
    """Return the list of :class:`~weft.tb.app.report.figures.Compared` of a calibration; None without a file."""
    if not path.exists():
        return None
    try:
        return [figures.Compared(judges=bool(one["judges"]), cycles=float(one["cycles"]["gateware"]),
                                 time_error=float(one["time_error"]), stall_error=float(one["stall_error"]),
                                 mismatches=len(one["mismatches"])) for one in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadTable(f"{str(path)!r} is not what weft calibrate keeps ({error!r}); move it away") from None


def report(output, tables, settings, *, command, **workers):
    """Run :func:`build`, print the problems, and return the exit status."""
    problems = build(output, tables, settings, command=command, **workers)
    print(f"report {output}")
    for problem in problems:
        print(f"weft: {problem}", file=sys.stderr)
    return 1 if problems else 0
