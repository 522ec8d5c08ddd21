"""Measured figures: their tables, their limits, and ``sim_build/reports/bench.json``.

The report is a list of ``{"name", "unit", "value", "command", "conditions"}``.
"""

import itertools
import json
import sys
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from weft.tb.sim.flow.aliases import current_figures, with_former_figures
from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.tools import write_whole

REPORT = BUILD_ROOT / "reports/bench.json"
FILE_WIDTH = 100       # columns of a table that is not printed on a terminal


@dataclass(frozen=True)
class Row:
    """Measured figure. A value beyond ``at_least`` or ``at_most`` fails the benchmark."""

    name: str      # one word, the same in every run
    unit: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    conditions: str = ""     # of the measurement, and what it counts; empty: those of its Benchmark

    @property
    def bar(self):
        """Return the limit as text; empty without a limit."""
        if self.at_least is not None:
            return f"at least {self.at_least:,.4g}"
        return f"at most {self.at_most:,.4g}" if self.at_most is not None else ""

    @property
    def missed(self):
        return (self.at_least is not None and self.value < self.at_least) or (
            self.at_most is not None and self.value > self.at_most)


def judged(name, rows, command):
    """Print the rows that ``command`` measured, and merge them into the report, whose other rows stay.

    Return the exit status: 1 if a row misses its limit.
    """
    if not rows:
        return 0
    console, before = output(), values()
    return exit_status(console, judge(console, name, rows, before, command))


def output(width=FILE_WIDTH):
    """Return the console for tables; ``width`` in columns applies where it is not a terminal."""
    console = Console()
    if not console.is_terminal:
        console.width = width
    return console


def plain_table(*columns, left=(), **options):
    """Return a table without lines; its columns are aligned to the right, except those in ``left``."""
    table = Table(box=None, pad_edge=False, **options)
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", overflow="fold")
    return table


def values():
    """Return ``{name: value}`` of the report."""
    return {row["name"]: row["value"] for row in load_report()}


def judge(console, name, rows, before, command=None):
    """Print rows and merge them into the report; return a sentence for each row that misses its limit.

    ``before`` is ``{name: value}`` to compare with. ``command`` measured part of benchmark ``name``; without it, the
    rows are the whole benchmark.
    """
    show(console, name, rows, before)
    merge_report(rows, command or f"weft bench --only {name}", whole=not command)
    return [f"{row.name} is {row.value:.4g} {row.unit}; the bar is {row.bar}" for row in rows if row.missed]


def exit_status(console, problems):
    """Print ``problems``; return 1 if there are any, otherwise 0."""
    console.print(f"report {REPORT}", style="dim", soft_wrap=True)
    for problem in problems:
        print(f"weft: {problem}", file=sys.stderr)
    return 1 if problems else 0


def show(console, name, rows, before):
    """Print rows as tables, one per group of conditions; ``before`` holds the values to compare with."""
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
    """Return the rows of the report; an empty list if the file is missing, is not JSON, or is not a list."""
    try:
        rows = json.loads(REPORT.read_text())
    except (OSError, json.JSONDecodeError):
        return []
    return current_figures(rows) if isinstance(rows, list) else []


def merge_report(rows, command, whole):
    """Merge the rows of ``command`` into the report; if ``whole``, they replace all earlier rows of that command."""
    merged = {row["name"]: row for row in load_report()}
    for row in rows:
        merged[row.name] = {"name": row.name, "unit": row.unit, "value": row.value,
                            "command": command, "conditions": row.conditions}
    now = {row.name for row in rows}
    merged = {name: row for name, row in merged.items() if not whole or name in now or row["command"] != command}
    write_whole(REPORT, json.dumps(with_former_figures(list(merged.values())), indent=1) + "\n")
