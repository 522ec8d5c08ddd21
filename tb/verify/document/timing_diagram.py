"""Timing diagrams of docs/integration.md: SVG made from WaveJSON (:mod:`~weft.tb.verify.document.port_waves`)."""

import hashlib
import inspect
import io
import json
import re
import sys

from matplotlib import pyplot

from weft.tb.app.report.drawing import STYLE
from weft.tb.sim.flow.sources import ROOT
from weft.tb.verify.document.port_waves import DATA

PICTURE = "docs/ports_{}.svg"
CELL, ROW = 0.68, 0.27          # inches of a cycle and of a signal
HIGH, EDGE = 0.62, 0.09         # height of a signal, of its row; width of an edge, of a cycle
LETTER, NAME_MIN = 0.1, 1.6     # width of a letter of a name, and of the shortest column of names, of a cycle
LINE, VOID, TITLE = "#1f2430", "#e3e6eb", "#0b5394"


def picture(name):
    """Return the path of a picture from the root of the checkout."""
    return PICTURE.format(name)


def waves(root=ROOT):
    """Return ``{picture: waves}`` as WaveJSON."""
    return json.loads((root / DATA).read_text(encoding="utf-8"))


def digest(name, rows):
    """Return the hash of a picture's waves and of the code that draws them, which the picture carries."""
    code = inspect.getsource(sys.modules[__name__])
    return hashlib.sha256(json.dumps([name, rows, STYLE, code]).encode()).hexdigest()


def draw(root=ROOT):
    """Draw the pictures, except those that show these waves already."""
    for name, rows in waves(root).items():
        target, mark = root / picture(name), digest(name, rows)
        if not target.exists() or mark not in target.read_text(encoding="utf-8"):
            target.write_text(svg(rows).replace("<svg", f'<svg data-waves="{mark}"', 1), encoding="utf-8")


def lines(rows):
    """Yield the lines of a diagram, ``(title, None)`` or ``(name, row)``; groups are lists in WaveJSON."""
    for row in rows:
        if isinstance(row, list):
            yield row[0], None
            yield from lines(row[1:])
        else:
            yield row["name"], row


def svg(rows):
    """Return a diagram as SVG text."""
    shown = list(lines(rows))
    cycles = max(len(row["wave"]) for _, row in shown if row)
    names, height = max(NAME_MIN, *(LETTER * len(name) + 0.3 for name, row in shown if row)), len(shown)
    with pyplot.rc_context(STYLE | {"font.size": 8}):
        figure = pyplot.figure(figsize=((names + cycles) * CELL, height * ROW))
        axes = figure.add_axes((0, 0, 1, 1), xlim=(-names, cycles), ylim=(height, 0))
        axes.set_axis_off()
        for at, (name, row) in enumerate(shown):
            base = at + (1 + HIGH) / 2
            if row is None:
                axes.text(-names + 0.1, at + 0.6, name, color=TITLE, weight="bold", va="center")
            else:
                axes.text(-0.15, at + 0.5, name, ha="right", va="center")
                signal(axes, row, base)
        for cycle in range(cycles + 1):
            axes.axvline(cycle, color="#c9ced6", linewidth=0.4, zorder=0)
        for cut in (at for at, letter in enumerate(shown[0][1]["wave"]) if letter == "|"):
            axes.axvspan(cut + 0.2, cut + 0.8, color="white", zorder=5)
            axes.text(cut + 0.5, height / 2, "…", ha="center", va="center", zorder=6, size=14)
        held = io.StringIO()
        figure.savefig(held, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
        pyplot.close(figure)
    text = held.getvalue()
    return text[text.index("<svg"):]


def pieces(row):
    """Yield the series of equal values of a row: begin, end, letter of WaveJSON, text, and middle of the text.

    A series that begins after a cut, and the one before it, meet in the middle of the cut.
    """
    wave, data = row["wave"], iter(row.get("data", ()))
    starts = [at for at, letter in enumerate(wave) if letter not in ".|"]
    for start, end in zip(starts, [*starts[1:], len(wave)], strict=True):
        longest = max(re.finditer(r"[^|]+", wave[start:end]), key=lambda found: len(found[0]))
        yield (start - wave[:start].endswith("|") / 2, end - wave[:end].endswith("|") / 2, wave[start],
               next(data) if wave[start] == "=" else "", start + (longest.start() + longest.end()) / 2)


def signal(axes, row, base):
    """Draw a row, whose low level is at ``base``."""
    top, middle = base - HIGH, base - HIGH / 2
    before = None       # level of the bit in the cycle before
    for start, end, letter, text, place in pieces(row):
        if letter in "p01":
            levels = {"0": base, "1": top}
            path = [(start, before), (start + EDGE, levels[letter])] if before else [(start, levels.get(letter, base))]
            if letter == "p":
                path = [point for cycle in range(len(row["wave"])) for point in (
                    (cycle, base), (cycle, top), (cycle + 0.5, top), (cycle + 0.5, base), (cycle + 1, base))]
            else:
                before = levels[letter]
                path.append((end, before))
            axes.plot(*zip(*path, strict=True), color=LINE, linewidth=1, zorder=2)
        else:
            before, line = None, VOID if letter == "x" else LINE
            corners = [(start, middle), (start + EDGE, top), (end - EDGE, top), (end, middle), (end - EDGE, base),
                       (start + EDGE, base)]
            axes.add_patch(pyplot.Polygon(corners, facecolor=VOID if letter == "x" else "white", edgecolor=line,
                                          linewidth=0.8, zorder=2))
            axes.text(place, middle, text, ha="center", va="center", zorder=3)
