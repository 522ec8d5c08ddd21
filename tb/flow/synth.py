"""Size of the card on an UltraScale+ FPGA as Yosys estimates it, out of context: no placement, no timing.

Each room of one preset goes through ``synth_xilinx -family xcup`` alone, its hierarchy kept, so the cells of each
block are counted where they are; nothing is optimised across blocks. A room that did not change is not synthesised
again. The report is
``sim_build/reports/synth.json``: ``{"preset", "yosys", "blocks": {name: {"lut", "ff", ...}}}``, names as in the
Verilog without the card's own, each block with its sub-blocks.
"""

import hashlib
import json
import re

from rich.console import Console
from rich.table import Table

from weft.hdl.params import preset
from weft.hdl.verilog import CARD_MODULE, card_verilog
from weft.tb.flow import lint
from weft.tb.flow.simulate import BUILD_ROOT, locked

REPORT = BUILD_ROOT / "reports/synth.json"
SCRIPT = ("read_verilog room.v; hierarchy -check -top {top}; "
          "synth_xilinx -family xcup -noiopad -noclkbuf -top {top}; tee -q -o stat.json stat -json -tech xilinx")

# How many of a kind one cell of the library counts for.
KINDS = {
    "lut": lambda cell: cell.startswith("LUT") or cell == "INV",
    "lutram": lambda cell: cell.startswith("RAM") and not cell.startswith("RAMB"),
    "srl": lambda cell: cell.startswith("SRL"),
    "ff": lambda cell: cell.startswith(("FD", "LD")),
    "carry": lambda cell: cell.startswith("CARRY"),
    "bram18": lambda cell: cell.startswith("RAMB18"),
    "bram36": lambda cell: cell.startswith("RAMB36"),
    "uram": lambda cell: cell.startswith("URAM"),
    "dsp": lambda cell: cell.startswith("DSP"),
}


def blocks_of(modules, top=CARD_MODULE):
    """``{block: {kind: cells}}`` of Yosys' ``stat -json``; a block counts its sub-blocks, ``""`` is all of them.

    Every block has a module of its own, named after its place, so nothing is counted twice.
    """
    blocks = {}
    for name, module in modules.items():
        parts = name.lstrip("\\").split(".")
        if parts[0] != top:
            continue
        cells = module["num_cells_by_type"]
        counts = {kind: sum(count for cell, count in cells.items() if counts_for(cell))
                  for kind, counts_for in KINDS.items()}
        for depth in range(1, len(parts) + 1):
            total = blocks.setdefault(".".join(parts[1:depth]), dict.fromkeys(KINDS, 0))
            for kind, count in counts.items():
                total[kind] += count
    return blocks


def rooms_of(text, top=CARD_MODULE):
    """``{room: (module, Verilog text)}`` of the sub-blocks of ``top``, each with the modules below it."""
    rooms = {}
    for module in re.split(r"^(?=module )", text, flags=re.MULTILINE)[1:]:
        parts = re.match(r"module \\?([^\s(;]+)", module)[1].split(".")
        if parts[0] == top and len(parts) > 1:
            rooms.setdefault(parts[1], []).append(module)
    return {room: (f"\\{top}.{room}", "\n".join(modules)) for room, modules in sorted(rooms.items())}


def synthesise(room, top, text):
    """Statistics of the modules of a room, kept by the content of its Verilog."""
    script = SCRIPT.format(top=top)
    digest = hashlib.sha256("\0".join((text, script, lint.yosys_version())).encode()).hexdigest()[:12]
    where = BUILD_ROOT / f"synth-{room}-{digest}"
    with locked(BUILD_ROOT / ".locks" / where.name):
        if not (where / "ready").exists():
            where.mkdir(parents=True, exist_ok=True)
            (where / "room.v").write_text(text)
            lint.yosys(where / "room.v", script)
            (where / "ready").touch()
    return json.loads((where / "stat.json").read_text())["modules"]


def run(name, depth=1):
    """Synthesise, print a table of blocks down to ``depth``, write the report; the exit status."""
    console, modules = Console(), {}
    with console.status("writing the card's Verilog") as status:
        for room, (top, text) in rooms_of(card_verilog(preset(name))).items():
            status.update(f"synthesising {room}")
            modules |= synthesise(room, top, text)
    blocks = blocks_of(modules)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps({"preset": name, "yosys": lint.yosys_version(), "blocks": blocks}, indent=1) + "\n")
    table = Table(box=None, pad_edge=False)
    table.add_column("block")
    kinds = [kind for kind in KINDS if blocks[""][kind]]
    for kind in kinds:
        table.add_column(kind, justify="right")
    shown = [block for block in sorted(blocks) if block and block.count(".") < depth]
    for block in [*shown, ""]:
        table.add_row(block or "card", *(f"{blocks[block][kind]:,}" for kind in kinds),
                      style="" if block else "bold")
    console.print(table)
    console.print(f"report {REPORT}", style="dim", soft_wrap=True)
    return 0
