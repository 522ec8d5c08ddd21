"""``weft bench``: run benchmarks, show their figures, keep them in ``sim_build/reports/bench.json``.

The report is a list of ``{"name", "unit", "value", "command", "conditions"}``; a run replaces all figures of the
benchmarks that it measured and keeps the others.
"""

import itertools
import json
import sys

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from weft.tb.sim.flow.progress import beside_bar
from weft.tb.sim.flow.simulate import BUILD_ROOT
from weft.tb.verify.bench.benchmark import BENCHMARKS

REPORT = BUILD_ROOT / "reports/bench.json"
PROGRESS = BUILD_ROOT / "reports/bench.progress.jsonl"
FILE_WIDTH = 100       # columns, where no terminal has a say


def print_list():
    """Name and subject of every benchmark."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, benchmark in BENCHMARKS.items():
        table.add_row(name, benchmark.about)
    Console().print(table)


def run(names=()):
    """Run the named benchmarks, or all; the exit status: 1 if one failed or a figure is below its bar."""
    console, before = _console(), _before()
    problems = []
    for name in names or BENCHMARKS:
        try:
            rows = _measure(console, name)
        except AssertionError as error:
            problems.append(f"{name} failed: {error}")
            continue
        problems += _judge(console, name, rows, before)
    return _told(console, problems)


def judged(name, rows, command):
    """Show rows that another ``command`` measured, keep them, and those that it did not measure this time; the exit
    status, as :func:`run` has it.
    """
    if not rows:
        return 0
    console, before = _console(), _before()
    return _told(console, _judge(console, name, rows, before, command))


def _console():
    console = Console()
    if not console.is_terminal:
        console.width = FILE_WIDTH
    return console


def _before():
    """Values of the report, to compare with."""
    return {row["name"]: row["value"] for row in load_report()}


def _judge(console, name, rows, before, command=None):
    """Show and keep rows; what is wrong with them."""
    show(console, name, rows, before)
    merge_report(rows, command or f"weft bench --only {name}", whole=not command)
    return [f"{row.name} is {row.value:.4g} {row.unit}; the bar is {row.bar}" for row in rows if row.missed]


def _told(console, problems):
    console.print(f"report {REPORT}", style="dim", soft_wrap=True)
    for problem in problems:
        print(f"weft: {problem}", file=sys.stderr)
    return 1 if problems else 0


def show(console, name, rows, before):
    """The figures of a benchmark, those of the same conditions below them; ``before``: values to compare with."""
    console.print(f"[bold]{name}[/]")
    for conditions, group in itertools.groupby(rows, lambda row: row.conditions):
        console.print(Padding(escape(conditions), (0, 0, 0, 2)), style="dim")
        table = Table(box=None, pad_edge=False, expand=True)
        table.add_column("    figure", ratio=1, overflow="fold")
        for column, justify, width in (("value", "right", 9), ("unit", "left", 12), ("bar", "right", 15),
                                       ("change", "right", 8)):
            table.add_column(column, justify=justify, min_width=width, no_wrap=True)
        for row in group:
            old = before.get(row.name)
            value = f"{row.value:,.4g}" if abs(row.value) < 1000 else f"{row.value:,.0f}"
            table.add_row(f"    {row.name}", f"[red]{value}[/]" if row.missed else value, row.unit, row.bar,
                          f"{100 * (row.value - old) / old:+.1f} %" if old else "")
        console.print(table)


def load_report():
    """The figures so far; none if the file is missing or of another form."""
    try:
        rows = json.loads(REPORT.read_text())
    except (OSError, json.JSONDecodeError):
        return []
    return rows if isinstance(rows, list) else []


def merge_report(rows, command, whole):
    """Put the rows of a command into the report, in place of all that it measured before if they are the ``whole``."""
    merged = {row["name"]: row for row in load_report()}
    for row in rows:
        merged[row.name] = {"name": row.name, "unit": row.unit, "value": row.value,
                            "command": command, "conditions": row.conditions}
    now = {row.name for row in rows}
    merged = {name: row for name, row in merged.items() if not whole or name in now or row["command"] != command}
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    part = REPORT.with_suffix(".part")
    part.write_text(json.dumps(list(merged.values()), indent=1) + "\n")
    part.rename(REPORT)


def _measure(console, name):
    """Rows of a benchmark, measured beside a progress bar."""
    PROGRESS.parent.mkdir(parents=True, exist_ok=True)
    PROGRESS.unlink(missing_ok=True)
    if not console.is_terminal:
        console.print(f"measuring {name}")
    return beside_bar(console, PROGRESS, lambda: BENCHMARKS[name].measure(PROGRESS),
                      f"{name}: building the simulator, minutes the first time", about=f"{name}: ", transient=True)
