"""``weft bench``: run every ``bench_*`` module that measures; JSON, and a table with the change since last time.

A module takes part by a function ``measure()`` that returns ``{"<what>, <unit>": number, ...}``.
"""

import importlib
import json
import pkgutil
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .sim import BUILD_ROOT

REPORT = BUILD_ROOT / "reports/bench.json"


def subjects():
    """The benchmark modules, by subject."""
    found = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("bench_"):
            loaded = importlib.import_module(f"weft.tb.{module.name}")
            if hasattr(loaded, "measure"):
                found[module.name.removeprefix("bench_")] = loaded.measure
    return found


def run():
    """Run them all; the exit status."""
    console = Console()
    before = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    results = {}
    for subject, measure in subjects().items():
        with console.status(f"measuring: {subject}"):
            results[subject] = measure()
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(results, indent=1) + "\n")
    table = Table(box=None, pad_edge=False)
    for column, justify in (("subject", "left"), ("figure", "left"), ("value", "right"), ("change", "right")):
        table.add_column(column, justify=justify)
    for subject, figures in results.items():
        for figure, value in figures.items():
            old = before.get(subject, {}).get(figure)
            change = f"{100 * (value - old) / old:+.1f} %" if old else ""
            table.add_row(subject, figure, f"{value:,.4g}", change)
    console.print(table)
    console.print(f"report {REPORT}", style="dim", soft_wrap=True)
    return 0
