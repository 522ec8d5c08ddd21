"""Report page: HTML without external resources."""

from collections.abc import Iterable
from html import escape

from weft.tb.app.report.figures import Figure

STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; padding: 1rem; max-width: 52rem; font: 1rem/1.5 system-ui, sans-serif; color: #1b1b1b;
  background: #fff; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .3rem; }
nav li { margin: 0; } figure { margin: .5rem 0; } svg { display: block; width: 100%; height: auto; }
code { display: block; padding: .4rem .6rem; background: #f2f2f2; font-size: .8rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ccc; text-align: right; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; min-width: 10rem; }
footer { margin-top: 3rem; font-size: .8rem; color: #555; }
@media print { body { max-width: none; font-size: 10pt; } section { break-inside: avoid; }
  code { border: 1px solid #ccc; } }
"""


def page(figures: Iterable[Figure], *, version: str, command: str) -> str:
    """Return the HTML of Figures."""
    figures = list(figures)
    contents = "\n".join(f'<li><a href="#{figure.name}">{escape(figure.title)}</a></li>' for figure in figures)
    parts = "\n".join(
        f'<section id="{figure.name}"><h2>{escape(figure.title)}</h2><p>{escape(figure.text)}</p>\n'
        f"<figure>{figure.body}</figure><code>{escape(figure.command)}</code></section>" for figure in figures)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Weft over wide-area paths</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Weft over wide-area paths</h1>
<p>Results of a packet-level model for Adamap and other schemes of loss recovery. Time is counted in packets on the
line; there is no congestion control. docs/wan.md describes the schemes and the limits of the model.</p>
<nav><ol>
{contents}
</ol></nav>
{parts}
<footer>Version {escape(version)}, made by <code>{escape(command)}</code></footer>
</body>
</html>
"""
