"""Generated parts of the documents.

A part lies between ``<!-- made: NAME -->`` and ``<!-- end -->``; ``python -m weft.tb.verify.document`` generates all of
them.
"""

import os
import re
import subprocess
import sys
from functools import partial

from weft.hdl.adamap.builder.builder import NodeBuilder
from weft.hdl.adamap.prefetch.evict import Evict
from weft.hdl.adamap.prefetch.fill import Fill
from weft.hdl.adamap.prefetch.prefetch import Prefetch
from weft.hdl.command.processor import CommandProcessor
from weft.hdl.command.qp_commands import QpCommands
from weft.hdl.contract.params import preset
from weft.hdl.ring.reader import RingReader
from weft.tb.sim.flow.sources import ROOT
from weft.tb.verify.document import mermaid, ports, sizing, subsystems, tables

EXAMPLES = "docs/examples"
_PART = re.compile(r"(<!-- made: ([\w./-]+) -->\n)(?:(?!<!-- made).)*?(<!-- end -->)", re.DOTALL)


def _machine(block, *parameters):
    return mermaid.diagram(block(*(parameters or [preset("test")])))


PARTS = {
    "card": subsystems.card, "adamap": subsystems.adamap, "second-level": subsystems.second_level,
    "states-prefetch": partial(_machine, Prefetch), "states-fill": partial(_machine, Fill),
    "states-evict": partial(_machine, Evict), "states-ring-reader": partial(_machine, RingReader, 16),
    "states-command": partial(_machine, CommandProcessor), "states-qp-commands": partial(_machine, QpCommands),
    "states-builder": partial(_machine, NodeBuilder), "states-qp": mermaid.qp_states,
    "holes": sizing.holes_table, "prefetch": sizing.prefetch_table, "pool": sizing.pool_table, "psn": sizing.psn_table,
    "default-pool": sizing.default_pool, "presets": sizing.preset_table,
    "qp-entry": sizing.qp_entry_table,
    "raw-header": tables.raw_header,
    "variables": tables.variables, "goodput-table": tables.goodput, "waivers": tables.waivers,
    "conformance": tables.conformance,
    "ports": ports.port_table, "ports-mac-clock": ports.mac_clock_table,
    "board-registers": tables.board_registers, "folders": tables.folder_table,
    "driver-folders": partial(mermaid.flowchart, "driver"), "tb-folders": partial(mermaid.flowchart, "tb"),
}


def documents(root=ROOT):
    """Return the Markdown files at the top of the tree and in ``docs/``."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").glob("*.md"))]


def examples(root=ROOT):
    """Return the example programs of the documents."""
    return sorted((root / EXAMPLES).glob("*.py"))


def run_example(file):
    """Run a program and return its output, or raise RuntimeError with its error output."""
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, encoding="utf-8",
                          env=os.environ | {"PYTHONIOENCODING": "utf-8"})
    if done.returncode:
        raise RuntimeError(f"{file.name} failed:\n{done.stderr}")
    return done.stdout


def make(name, root=ROOT):
    """Return the text of a part, or raise KeyError. ``NAME.py`` is an example, ``NAME.out`` its output."""
    example = (root / EXAMPLES / name).with_suffix(".py")
    if name.endswith(".py"):
        return f"```python\n{example.read_text().strip()}\n```"
    if name.endswith(".out"):
        return f"```\n{run_example(example).strip()}\n```"
    return PARTS[name]()


def names(text):
    """Return the names of the parts of a document, in order."""
    return [found[2] for found in _PART.finditer(text)]


def fill(text, made):
    """Return a document with its parts replaced; ``made(name)`` is the text of a part."""
    return _PART.sub(lambda found: found[1] + made(found[2]) + "\n" + found[3], text)
