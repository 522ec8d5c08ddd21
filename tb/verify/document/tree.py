"""Table of the source tree: every folder with code and the first sentence of its docstring."""

import ast
import re
from pathlib import Path

from weft.tb.verify.document.sizing import table

ROOT = Path(__file__).resolve().parents[3]
TOP = ("hdl", "model", "driver", "tb")


def folders(root=ROOT):
    """``{folder: sentence}``, top folders in the order in which they depend on each other."""
    found = {}
    for top in TOP:
        for file in sorted((root / top).rglob("__init__.py")):      # folders of tests have none
            doc = ast.get_docstring(ast.parse(file.read_text())) or ""
            sentence = re.split(r"(?<=\.)\s", doc, maxsplit=1)[0]
            found[file.parent.relative_to(root).as_posix()] = sentence.replace("\n", " ").replace("``", "`")
    return found


def folder_table():
    """Markdown table of the folders, nested ones indented."""
    return table(("folder", "content"), [
        (f"{'&emsp;' * folder.count('/')}[`{folder}/`](../{folder})", sentence)
        for folder, sentence in folders().items()])
