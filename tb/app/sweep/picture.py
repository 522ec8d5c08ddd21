"""The picture of a sweep: one quantity against another, a line for each value of a third."""

import textwrap
from collections import defaultdict
from statistics import fmean

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

UNITS = {"goodput": "goodput, share of the payload rate", "goodput_gbps": "goodput, Gb/s",
         "completion_ms": "completion, ms", "loss": "loss", "host_bytes": "host memory, bytes",
         "card_bytes": "card memory, bytes", "qps": "QPs",
         "depth": "nodes cached n", "skew_us": "longest path behind the shortest, µs"}
COMMAND_COLUMNS = 170
MARKERS = "osD^vP*X<>hd"


def draw(rows, picture, path, command):
    """Draw rows of a table into a PNG, ``line`` by ``line``; points that differ in other settings are averaged."""
    x, y, line = picture["x"], picture["y"], picture["line"]
    lines = defaultdict(lambda: defaultdict(list))
    for row in rows:
        lines[row[line]][row[x]].append(row[y])
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for number, (name, points) in enumerate(sorted(lines.items())):
        places = sorted(points)
        axes.plot(places, [fmean(points[place]) for place in places], label=str(name),
                  linewidth=1.2 + 4 * (len(lines) - number - 1) / len(lines),   # lines that coincide stay visible
                  marker=MARKERS[number % len(MARKERS)], markersize=4)
    for axis in picture.get("log", []):
        if axis == "x":
            least = min((place for points in lines.values() for place in points if place > 0), default=1)
            axes.set_xscale("symlog", linthresh=least)
        else:
            axes.set_yscale("log")
    axes.set(xlabel=UNITS.get(x, x), ylabel=UNITS.get(y, y))
    axes.grid(alpha=0.3)
    axes.legend(title=line, fontsize=8)
    figure.supxlabel(textwrap.fill(command, COMMAND_COLUMNS), fontsize=6, color="gray")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
