"""``python -m weft.tb.document``: make the generated parts of the documents anew."""

from weft.tb.document.parts import ROOT, documents, fill, make
from weft.tb.document.registers import registers_markdown

if __name__ == "__main__":
    (ROOT / "docs/registers.md").write_text(registers_markdown())
    for document in documents():
        document.write_text(fill(document.read_text(), make))
