"""Tables of the documents: registers of the board, header of raw RDMA, variables, folders, measured goodput."""

import ast
import csv
import itertools
import re

from weft.driver.soft.raw.packet import HEADER
from weft.hdl.board.mac_side import EVENTS
from weft.hdl.board.registers import CONTROL, CONTROL_BITS, COUNTERS, ID, MAGIC, STATUS, STATUS_BITS
from weft.model.settings import fields
from weft.tb.app.device.registers import table
from weft.tb.app.job.job_settings import JobSettings
from weft.tb.sim.flow.sources import ROOT
from weft.tb.sim.flow.verilator import WAIVERS
from weft.tb.verify.conformance.c_suite import cases

TOP = ("hdl", "model", "driver", "tb")
GOODPUT = "docs/goodput.csv"


def board_registers():
    """Return the table of offset, name and meaning of each register of the board."""
    rows = [(ID, "id", f"{MAGIC:#x}: \"WEFT\", and the board")]
    rows += [(CONTROL, f"control, bit {bit}", f"`{name}`: {text}") for bit, (name, text) in enumerate(CONTROL_BITS)]
    rows += [(STATUS, "status", "from bit 0: " + ", ".join(f"`{name}`" for name in STATUS_BITS))]
    rows += [(COUNTERS + 8 * index, name, text) for index, (name, _, text) in enumerate(EVENTS)]
    return table(("offset", "register", "meaning"), [(f"{offset:#05x}", *reported) for offset, *reported in rows])


def raw_header():
    """Return the table of the fields, with offsets in bytes from the end of the Ethernet header."""
    return table(("offset", "bytes", "field", "meaning"), [
        (HEADER.offset_of(field.name) // 8, field.width // 8,
         "zero" if field.name.startswith("_") else f"`{field.name}`",
         field.doc or ("`Opcode`" if field.enum else "")) for field in HEADER.fields])


def conformance():
    """Return the table of the cases of the conformance suite, each with its rule."""
    return table(("subject", "case", "rule"), [(case.subject, f"`{case.name}`", case.rule) for case in cases()])


def waivers():
    """Return the table of Verilator's warnings that the lint of the card ignores, each with its reason."""
    return table(("warning", "reason"), [(f"`{name}`", reason) for name, reason in WAIVERS.items()])


def goodput(root=ROOT):
    """Return the table of goodput by loss and scheme, of the measured points in :data:`GOODPUT`."""
    with open(root / GOODPUT, encoding="utf-8") as file:
        found = {(row["loss"], row["scheme"]): float(row["goodput"]) for row in csv.DictReader(file)}
    losses, schemes = (dict.fromkeys(key[part] for key in found) for part in (0, 1))
    return table(("loss", *(f"`{scheme}`" for scheme in schemes)),
                 [(loss, *(f"{found[loss, scheme]:.3g}" for scheme in schemes)) for loss in losses])


def variables():
    """Return the table of variables, with one row for neighbors that have the same values and default."""
    rows = []
    for _, alike in itertools.groupby(fields(JobSettings).values(), _values):
        alike = list(alike)
        names = ", ".join(f"`{field.name.upper()}`" for field in alike)
        meanings = "; ".join(map(_meaning, alike))
        rows.append((names, _default(alike[0]), meanings))
    return table(("variable", "default", "meaning"), rows)


def _values(field):
    """Return a key that is equal for settings that share a row."""
    setting = field.setting
    return field.kind, field.default, setting.least, setting.most, setting.choices


def _default(field):
    if field.kind is bool:
        return "0"
    return field.setting.default_text or ("" if field.default is None else f"{field.default:g}" if isinstance(
        field.default, float) else str(field.default))


def _meaning(field):
    text = field.setting.about.removesuffix(".")
    text = text if text[:2].isupper() else text[0].lower() + text[1:]
    choices = ", ".join(f"`{choice}`" for choice in field.setting.choices)
    return f"{text} ({choices})" if choices else text


def folders(root=ROOT):
    """Return ``{folder: sentence}``, top folders in the order in which they depend on each other."""
    found = {}
    for top in TOP:
        for file in sorted((root / top).rglob("__init__.py")):      # folders of tests have none
            doc = ast.get_docstring(ast.parse(file.read_text())) or ""
            sentence = re.split(r"(?<=\.)\s", doc, maxsplit=1)[0]
            found[file.parent.relative_to(root).as_posix()] = sentence.replace("\n", " ").replace("``", "`")
    return found


def folder_table():
    """Return the Markdown table of the folders, nested ones indented."""
    return table(("folder", "content"), [
        (f"{'&emsp;' * folder.count('/')}[`{folder}/`](../{folder})", sentence)
        for folder, sentence in folders().items()])
