"""``python -m weft.tb.verify.document [--measured]``: write the generated parts of the documents.

With ``--measured`` the figures of the last runs, from ``sim_build/reports/``, are written into the documents, too.
"""

import sys

import pyarrow.parquet

from weft.tb.app.device.registers import registers_markdown
from weft.tb.verify.document import goodput, measured, timing_diagram
from weft.tb.verify.document.parts import ROOT, documents, fill, make

if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--measured"]):
        sys.exit("python -m weft.tb.verify.document takes one option, --measured")
    (ROOT / "docs/registers.md").write_text(registers_markdown(), encoding="utf-8")
    for document in documents():
        text = fill(document.read_text(encoding="utf-8"), make)
        if sys.argv[1:]:
            text = measured.fill(text, ROOT / measured.REPORTS)
        document.write_text(text, encoding="utf-8")
    if sys.argv[1:] and (ROOT / goodput.TABLE).exists():
        goodput.take(pyarrow.parquet.read_table(ROOT / goodput.TABLE).to_pylist())
    goodput.draw()
    timing_diagram.draw()
