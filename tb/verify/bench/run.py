"""``weft bench``: run benchmarks, show their figures, and keep them in ``sim_build/reports/bench.json``.

A run replaces all figures of the benchmarks that it measured and keeps the others.
"""

from rich.console import Console
from rich.table import Table

from weft.tb.sim.flow import figures
from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.progress import beside_bar
from weft.tb.verify.bench.benchmark import BENCHMARKS

PROGRESS = BUILD_ROOT / "reports/bench.progress.jsonl"


def print_list():
    """Print name and description of every benchmark."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, benchmark in BENCHMARKS.items():
        table.add_row(name, benchmark.about)
    Console().print(table)


def run(names=()):
    """Run the named benchmarks, or all; return the exit status: 1 if one failed or a figure misses its limit."""
    console, before = figures.output(), figures.values()
    problems = []
    for name in names or BENCHMARKS:
        try:
            rows = _measure(console, name)
        except AssertionError as error:
            problems.append(f"{name} failed: {error}")
            continue
        problems += figures.judge(console, name, rows, before)
    return figures.exit_status(console, problems)


def _measure(console, name):
    """Run a benchmark beside a progress bar; return its rows."""
    PROGRESS.parent.mkdir(parents=True, exist_ok=True)
    PROGRESS.unlink(missing_ok=True)
    if not console.is_terminal:
        console.print(f"measuring {name}")
    return beside_bar(console, PROGRESS, lambda: BENCHMARKS[name].measure(PROGRESS),
                      {"phase": f"{name}: building the simulator, minutes the first time"}, about=f"{name}: ",
                      transient=True)
