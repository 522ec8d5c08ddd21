"""``python -m weft.tb.verify.document [--measured] [--root FOLDER]``: write the generated parts of the documents.

With ``--measured`` the figures of the last runs, from ``sim_build/reports/``, are written into the documents, too.
"""

import argparse
from functools import cache
from pathlib import Path

import pyarrow.parquet

from weft.tb.app.device.registers import registers_markdown
from weft.tb.verify.document import goodput, measured, timing_diagram
from weft.tb.verify.document.parts import ROOT, documents, fill, make


def write(root: Path, with_figures: bool) -> None:
    """Write the generated parts of the documents below ``root``; the code is that of this checkout."""
    made = cache(make)
    (root / "docs/registers.md").write_text(registers_markdown(), encoding="utf-8")
    for document in documents(root):
        text = fill(document.read_text(encoding="utf-8"), made)
        if with_figures:
            text = measured.fill(text, root / measured.REPORTS)
        document.write_text(text, encoding="utf-8")
    if with_figures and (root / goodput.TABLE).exists():
        goodput.take(pyarrow.parquet.read_table(root / goodput.TABLE).to_pylist(), root)
    goodput.draw(root)
    timing_diagram.draw(root)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m weft.tb.verify.document", description=write.__doc__)
    parser.add_argument("--measured", action="store_true", help="also the figures of the last runs")
    parser.add_argument("--root", type=Path, default=ROOT, metavar="FOLDER",
                        help="a copy of the documents, instead of those of this checkout")
    given = parser.parse_args()
    if not (given.root / "docs").is_dir():
        parser.error(f"{given.root} has no folder docs; --root takes a copy of the documents")
    write(given.root, given.measured)
