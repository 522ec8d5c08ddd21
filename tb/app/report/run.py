"""``weft report``: completes the sweeps of the report, draws their figures, and writes the page."""

import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from weft.model.wan.experiment import Experiment
from weft.tb.app.report import figures
from weft.tb.app.report.figures import Figure
from weft.tb.app.sweep import plan, run
from weft.tb.app.sweep.plans import PLANS
from weft.tb.app.sweep.table import BadTable
from weft.tb.sim.scenario.compare import REPORT

STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; padding: 1rem; max-width: 52rem; font: 1rem/1.5 system-ui, sans-serif; color: #1b1b1b;
  background: #fff; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .3rem; }
nav li { margin: 0; } figure { margin: .5rem 0; } svg { display: block; width: 100%; height: auto; }
code { display: block; padding: .4rem .6rem; background: #f2f2f2; font-size: .8rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ccc; text-align: right; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; min-width: 10rem; }
footer { margin-top: 3rem; font-size: .8rem; color: #555; }
@media print { body { max-width: none; font-size: 10pt; } section { break-inside: avoid; }
  code { border: 1px solid #ccc; } }
"""
SHOWN = {"goodput": figures.goodput, "completion": figures.completion, "queue_pairs": figures.memory,
         "stalls": figures.stalls}


def page(figures: Iterable[Figure], *, version: str, command: str) -> str:
    """Return the HTML of Figures."""
    figures = list(figures)
    contents = "\n".join(f'<li><a href="#{figure.name}">{escape(figure.title)}</a></li>' for figure in figures)
    parts = "\n".join(
        f'<section id="{figure.name}"><h2>{escape(figure.title)}</h2><p>{escape(figure.text)}</p>\n'
        f"<figure>{figure.body}</figure><code>{escape(figure.command)}</code></section>" for figure in figures)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Weft over wide-area paths</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Weft over wide-area paths</h1>
<p>Results of a packet-level model for Adamap and other schemes of loss recovery. Time is counted in packets on the
line; there is no congestion control. docs/wan.md describes the schemes and the limits of the model.</p>
<nav><ol>
{contents}
</ol></nav>
{parts}
<footer>Version {escape(version)}, made by <code>{escape(command)}</code></footer>
</body>
</html>
"""


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
