"""Pictures as SVG text: no file, no script, letters stay letters."""

import io
import re
from collections import defaultdict
from statistics import fmean

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

STYLE = {"svg.fonttype": "none", "svg.hashsalt": "weft", "font.family": "sans-serif", "font.size": 11,
         "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False}
MARKERS = "osD^vP*X<>hd"


def picture(draw, *, xlabel, ylabel, log="", legend=None):
    """SVG of what ``draw(axes)`` draws; ``log``: the axes that are logarithmic, "x" and 0 as well, "y"."""
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
        draw(axes)
        if "x" in log:
            places = [place for line in axes.get_lines() for place in line.get_xdata() if place > 0]
            axes.set_xscale("symlog", linthresh=min(places, default=1))
        if "y" in log:
            axes.set_yscale("log")
        axes.set(xlabel=xlabel, ylabel=ylabel)
        if legend is not None:
            axes.legend(title=legend or None, fontsize=8, framealpha=0.8)
        held = io.StringIO()
        figure.savefig(held, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    svg = held.getvalue()
    svg = svg[svg.index("<svg"):]
    return re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)


def lines(axes, rows, x, y, line, *, style="-"):
    """A line of ``y(row)`` over ``row[x]`` for each value of ``row[line]``; points of one place are averaged."""
    found = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row[line]][row[x]].append(y(row))
    for number, (name, points) in enumerate(found.items()):
        places = sorted(points)
        axes.plot(places, [fmean(points[place]) for place in places], style, label=f"{name}", markersize=4,
                  marker=MARKERS[number % len(MARKERS)],
                  linewidth=1 + 3 * (len(found) - number - 1) / len(found))   # lines that coincide stay visible
