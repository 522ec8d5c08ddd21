"""Report of the main job as text for the terminal."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_report(console: Console, path: Path) -> bool:
    """Print the report; return whether the run passed."""
    if not path.exists():
        console.print("The bench left no report.", style="red")
        return False
    report = json.loads(path.read_text())
    shown = {name.replace("_", " "): _shown(value) for name, value in report.items()
             if not isinstance(value, (dict, list)) and name != "ok"}
    width = max(map(len, shown), default=0)
    for name, text in shown.items():
        line(console, Text.assemble((name.ljust(width), "cyan"), "  ", text))
    for direction, counters in report.get("link", {}).items():
        console.print(_link_table(direction, counters))
    for failure in report.get("failures", []):
        line(console, Text(failure, style="red"))
    for warning in report.get("warnings", []):
        line(console, Text(f"warning: {warning}", style="yellow"))
    passed = bool(report["ok"])
    console.print("PASSED" if passed else "FAILED", style="bold green" if passed else "bold red")
    return passed


def line(console: Console, text: Text | str, style: str | None = None) -> None:
    """Print a text that is not wrapped, so that it can be copied."""
    console.print(text, style=style, soft_wrap=True, markup=False, highlight=False)


def _link_table(direction: str, counters: dict[str, dict[str, int]]) -> Table:
    """Return a table of the frames of one direction, by outcome and kind."""
    table = Table(title=f"frames {direction.replace('_', ' ')}", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    kinds = list(counters["sent"])
    for kind in kinds:
        table.add_column(kind.replace("_", " "), justify="right")
    for fate, by_kind in counters.items():
        table.add_row(fate, *(f"{by_kind.get(kind, 0):,}" for kind in kinds))
    return table


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return str(value)
