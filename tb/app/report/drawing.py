"""Pictures as SVG text, without files and scripts, with text as text."""

import io
import re
from collections.abc import Callable
from typing import Any

from matplotlib import pyplot
from matplotlib.axes import Axes

from weft.tb.app.sweep.picture import scale

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "weft", "font.family": "sans-serif", "font.size": 11,
    "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False}


def picture(draw: Callable[[Axes], object], *, xlabel: str, ylabel: str, log: str = "",
            legend: str | None = None, title: str = "") -> str:
    """Return the SVG of ``draw(axes)``; ``log``: the logarithmic axes, "x", which includes 0, and "y"."""
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
        draw(axes)
        scale(axes, log)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        if title:
            axes.set_title(title, fontsize=10)
        if legend is not None:
            axes.legend(title=legend or None, fontsize=8, framealpha=0.8)
        held = io.StringIO()
        figure.savefig(held, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    svg = held.getvalue()
    svg = svg[svg.index("<svg"):]
    return re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
