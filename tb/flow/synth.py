"""Size of the card on an UltraScale+ FPGA and its longest paths, as Yosys estimates them out of context.

Each room of a preset goes through ``synth_xilinx -family xcup`` alone, its hierarchy kept, so the cells of each
block are counted where they are; nothing is optimised across blocks, and nothing is placed. What a path takes is the
sum of constants: see :mod:`weft.tb.flow.path`. Paths from one room into another are not seen. A room that did not
change is not synthesised again. The report is ``sim_build/reports/synth.json``: ``{"preset", "yosys", "blocks": {name:
{"lut", "ff", ...}}, "paths": {room: {"ns", "levels", "from", "to"}}}`` of the first preset, names as in the Verilog
without the card's own, each block with its sub-blocks; ``"others"`` has the same of the other presets.
"""

import hashlib
import json
import re

from rich.console import Console
from rich.table import Table

from weft.hdl.params import preset
from weft.hdl.verilog import CARD_MODULE, card_verilog
from weft.tb.flow import lint, yosys
from weft.tb.flow.path import CONSTANTS, worst_path
from weft.tb.flow.simulate import BUILD_ROOT, locked

REPORT = BUILD_ROOT / "reports/synth.json"
SCRIPT = ("read_verilog room.v; hierarchy -check -top {top}; "
          "synth_xilinx -family xcup -noiopad -noclkbuf -top {top}; tee -q -o stat.json stat -json -tech xilinx; "
          "flatten; write_json netlist.json")

class NoSuchRoom(ValueError):
    """The message names those that there are."""


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
    """Statistics of the modules of a room and its longest path, kept by the content of its Verilog."""
    script = SCRIPT.format(top=top)
    digest = hashlib.sha256("\0".join((text, script, yosys.version(), CONSTANTS)).encode()).hexdigest()[:12]
    where = BUILD_ROOT / f"synth-{room}-{digest}"
    with locked(BUILD_ROOT / ".locks" / where.name):
        if not (where / "ready").exists():
            where.mkdir(parents=True, exist_ok=True)
            (where / "room.v").write_text(text)
            lint.yosys(where / "room.v", script)
            path = worst_path((where / "netlist.json").read_text(), top.removeprefix("\\"))
            (where / "netlist.json").unlink()               # tens of megabytes
            (where / "path.json").write_text(json.dumps(
                {"ns": path.ns, "levels": path.levels, "from": path.ends[0], "to": path.ends[1]}))
            (where / "ready").touch()
    return json.loads((where / "stat.json").read_text())["modules"], json.loads((where / "path.json").read_text())


def run(names, depth=1, only=()):
    """Synthesise presets, print a table of blocks down to ``depth`` of each, write the report.

    With ``only`` these rooms alone, and no report. Returns ``{preset: (blocks, paths)}``.

    Raises
    ------
    NoSuchRoom
    """
    console, found = Console(), {}
    for name in names:
        modules, paths = {}, {}
        with console.status(f"writing the card's Verilog, preset {name}") as status:
            rooms = rooms_of(card_verilog(preset(name)))
            for room in only or rooms:
                if room not in rooms:
                    raise NoSuchRoom(f"there is no room {room!r}; choose of {', '.join(rooms)}")
                status.update(f"synthesising {room}, preset {name}")
                counted, paths[room] = synthesise(room, *rooms[room])
                modules |= counted
        found[name] = blocks_of(modules), paths
        _show(console, name, *found[name], depth)
    console.print(f"paths: {CONSTANTS}; nothing is placed, and paths between rooms are not seen", style="dim")
    if not only:
        reports = [{"preset": name, "blocks": blocks, "paths": paths} for name, (blocks, paths) in found.items()]
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(json.dumps({**reports[0], "yosys": yosys.version(), "others": reports[1:]},
                                     indent=1) + "\n")
        console.print(f"report {REPORT}", style="dim", soft_wrap=True)
    return found


def figures(found):
    """``{name: (value, unit)}`` of what :func:`run` found: those for which it has everything."""
    rows = {}
    if {"basic", "full"} <= found.keys():
        rows["synth_worst_path_ns"] = max(path["ns"] for _, paths in found.values() for path in paths.values()), "ns"
    if "full" in found:
        card = found["full"][0][""]
        rows["synth_bram36_full"] = card["bram36"] + card["bram18"] / 2, "block RAMs"
        rows["synth_uram_full"] = card["uram"], "UltraRAMs"
    if "basic" in found:
        rows["synth_lut_adamap_basic"] = found["basic"][0]["adamap"]["lut"], "LUT"
    return rows


def _show(console, name, blocks, paths, depth):
    table = Table(box=None, pad_edge=False, title=f"preset {name}", title_justify="left")
    table.add_column("block")
    kinds = [kind for kind in KINDS if blocks[""][kind]]
    for column in (*kinds, "levels", "path, ns"):
        table.add_column(column, justify="right")
    worst = max(paths.values(), key=lambda path: path["ns"])
    shown = [block for block in sorted(blocks) if block and block.count(".") < depth]
    for block in [*shown, ""]:
        path = paths.get(block) or (None if block else worst)
        table.add_row(block or "card", *(f"{blocks[block][kind]:,}" for kind in kinds),
                      *((str(path["levels"]), f"{path['ns']:.2f}") if path else ("", "")),
                      style="" if block else "bold")
    console.print(table)
    for room, path in sorted(paths.items(), key=lambda item: -item[1]["ns"]):
        console.print(f"  {room}: {path['from']} → {path['to']}", style="dim", soft_wrap=True, highlight=False)
