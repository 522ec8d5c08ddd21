"""Report of the main job as text for the terminal."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft.model.fabric.frame.report import sentences
from weft.tb.sim.flow.aliases import current_fields
from weft.tb.sim.flow.figures import plain_table

BRIEF = ("packets_sent", "packets_lost", "packets_retransmitted", "spurious_retransmissions", "goodput_gbps")
UNITS = ("bytes", "KiB", "MiB")


def headline(report: dict[str, Any]) -> str:
    """Return a sentence about the result of a run: bytes, losses, retransmissions."""
    size, unit = report["bytes"], 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    intact = report["sha256_sent"] == report["sha256_received"]
    spurious = report["spurious_retransmissions"]
    return (f"{size:,.3g} {UNITS[unit]} {'arrived intact' if intact else 'did not arrive intact'}; of "
            f"{report['packets_sent']:,} packets {report['packets_lost']:,} were lost, "
            f"{report['packets_retransmitted']:,} retransmitted"
            + ("" if spurious is None else f", {f'{spurious:,}' if spurious else 'none'} spuriously"))


def print_report(console: Console, path: Path, *, brief: bool = False) -> bool:
    """Print the report; return whether the run passed.

    With ``brief``, print a sentence and the figures :data:`BRIEF`. Lines are not wrapped at any width, so that digests
    and the command can be copied.
    """
    if not path.exists():
        console.print("The bench left no report.", style="red")
        return False
    report = current_fields("sim", json.loads(path.read_text()))
    if "sha256_sent" in report and "packets_sent" in report:
        line(console, Text(headline(report), style="bold"))
    shown = {name.replace("_", " "): _shown(value) for name, value in report.items()
             if not isinstance(value, (dict, list)) and name != "ok" and (name in BRIEF or not brief)}
    width = max(map(len, shown), default=0)
    for name, text in shown.items():
        line(console, Text.assemble((name.ljust(width), "cyan"), "  ", text))
    for direction, counters in ({} if brief else report.get("link", {})).items():
        console.print(_link_table(direction, counters))
    for sentence in sentences(report["fabric"]) if "fabric" in report else ():
        line(console, sentence)
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
    kinds = list(counters["sent"])
    table: Table = plain_table("", *(kind.replace("_", " ") for kind in kinds), left=("",),
                               title=f"frames {direction.replace('_', ' ')}", title_justify="left")
    for outcome, by_kind in counters.items():
        table.add_row(outcome, *(f"{by_kind.get(kind, 0):,}" for kind in kinds))
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
