"""Picture of a sweep: one quantity against another, with a line for each value of a third."""

import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import matplotlib
from matplotlib.axes import Axes

from weft.tb.app.sweep.subject import Row

matplotlib.use("Agg")
from matplotlib import pyplot

UNITS = {"goodput": "goodput, share of the payload rate", "goodput_gbps": "goodput, Gb/s",
         "completion_ms": "completion, ms", "loss": "loss", "host_bytes": "host memory, bytes",
         "card_bytes": "card memory, bytes", "qps": "QPs",
         "depth": "nodes cached n", "skew_us": "longest minus shortest path, µs"}
COMMAND_COLUMNS = 170
MARKERS = "osD^vP*X<>hd"
OURS = "adamap"


def lines(axes: Axes, rows: Iterable[Row], x: str, y: Callable[[Row], float], line: str, *, style: str = "-") -> None:
    """Draw a line of ``y(row)`` over ``row[x]`` for each value of ``row[line]``; points with equal x are averaged.

    Lines that coincide stay visible, and :data:`OURS` is in front of all others.
    """
    found: dict[Any, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row[line]][row[x]].append(y(row))
    for number, (name, points) in enumerate(found.items()):
        places = sorted(points)
        ours = name == OURS
        axes.plot(places, [fmean(points[place]) for place in places], style, markersize=4,
                  label=f"{name}{' (Weft)' * ours}", marker=MARKERS[number % len(MARKERS)], zorder=3 if ours else 2,
                  linewidth=2 if ours else 1.5 + 4 * (len(found) - number - 1) / len(found))


def scale(axes: Axes, log: str | list[str]) -> None:
    """Make the axes named in ``log`` logarithmic: "x", which includes 0, and "y"."""
    if "x" in log:
        places = [place for line in axes.get_lines() for place in cast(list[float], line.get_xdata()) if place > 0]
        axes.set_xscale("symlog", linthresh=min(places, default=1))
    if "y" in log:
        axes.set_yscale("log")


def draw(rows: list[Row], picture: dict[str, Any], path: Path, command: str) -> None:
    """Draw rows of a table into a PNG, with lines by ``line``; points that differ in other settings are averaged."""
    x, y, line = picture["x"], picture["y"], picture["line"]
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    lines(axes, sorted(rows, key=lambda row: row[line]), x, lambda row: row[y], line)
    scale(axes, picture.get("log", []))
    axes.set(xlabel=UNITS.get(x, x), ylabel=UNITS.get(y, y))
    axes.grid(alpha=0.3)
    axes.legend(title=line, fontsize=8)
    figure.supxlabel(textwrap.fill(command, COMMAND_COLUMNS), fontsize=6, color="gray")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
