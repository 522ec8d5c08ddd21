"""Size of the card on an UltraScale+ FPGA and its longest paths, as Yosys estimates them out of context.

Each block of a preset goes through ``synth_xilinx -family xcup`` separately (:mod:`weft.tb.sim.synth.mapped`): there is
no optimization across blocks and no placement. The delay of a path is a sum of constants over all blocks that it
crosses: see :mod:`weft.tb.sim.synth.path`. Unchanged blocks are not synthesized again. The report
``sim_build/reports/synth.json`` holds ``{"preset", "yosys", "blocks": {name: {"lut", "ff", ...}}, "paths": {subsystem:
{"ns", "levels", "start", "end", "via"}}, "seconds": {subsystem: CPU}}`` of the first preset. Names are those of the
Verilog without the card's name, each block includes its sub-blocks, and ``""`` is the card. ``"others"`` has the same
for the other presets.
"""

import hashlib
import json
from dataclasses import asdict, dataclass

from rich.console import Console

from weft.hdl.contract.params import preset
from weft.hdl.verilog import CARD_MODULE
from weft.tb.sim.flow.build import card_text
from weft.tb.sim.flow.figures import plain_table
from weft.tb.sim.flow.simulate import BUILD_ROOT
from weft.tb.sim.flow.sources import sources
from weft.tb.sim.flow.tools import write_whole
from weft.tb.sim.synth import mapped, place, yosys
from weft.tb.sim.synth.path import CONSTANTS, linked, worst_paths

REPORT = BUILD_ROOT / "reports/synth.json"
PATHS = 12              # of a subsystem, that are cached


class NoSuchSubsystem(ValueError):
    """The subsystem does not exist. The message lists the subsystems."""


# {kind: predicate of the library cells that count}
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


@dataclass
class Found:
    """Result for a preset.

    ``blocks``: ``{block: {kind: cells}}``; ``paths``: ``{subsystem: [path as a dict, worst first]}``; ``seconds``:
    ``{subsystem: CPU time}``. The subsystem ``""`` is the card.
    """

    blocks: dict
    paths: dict
    seconds: dict


def blocks_of(modules, top=CARD_MODULE):
    """Return ``{block: {kind: cells}}`` for ``{module: {cell: count}}``; blocks include sub-blocks, ``""`` is the card.

    Every block has a separate module, named after its path, so nothing is counted twice.
    """
    blocks = {}
    for name, cells in modules.items():
        parts = name.split(".")
        if parts[0] != top:
            continue
        counts = {kind: sum(count for cell, count in cells.items() if counts_for(cell))
                  for kind, counts_for in KINDS.items()}
        for depth in range(1, len(parts) + 1):
            total = blocks.setdefault(".".join(parts[1:depth]), dict.fromkeys(KINDS, 0))
            for kind, count in counts.items():
                total[kind] += count
    return blocks


def subsystems_of(text):
    """Return ``{subsystem: {module: Verilog}}`` of the sub-blocks of the card; ``""`` is the card itself."""
    subsystems = {}
    for module, verilog in mapped.modules_of(text).items():
        parts = module.split(".")
        if parts[0] == CARD_MODULE:
            subsystems.setdefault(parts[1] if len(parts) > 1 else "", {})[module] = verilog
    return dict(sorted(subsystems.items()))


def synthesise(subsystems, finished=lambda *_: None, top=CARD_MODULE):
    """Return the :class:`Found` of ``{subsystem: {module: Verilog}}``; the card is included only if ``""`` is."""
    digests = mapped.map_modules({subsystem or "card": modules for subsystem, modules in subsystems.items()}, finished)
    cells, seconds = {}, dict.fromkeys(subsystems, 0.0)
    for subsystem, modules in subsystems.items():
        for module in modules:
            cells[module], spent = mapped.counted(digests[module])
            seconds[subsystem] += spent
    paths = {subsystem: _paths(f"{top}.{subsystem}".rstrip("."), digests) for subsystem in subsystems}
    if "" in subsystems:
        seconds[""] = sum(seconds.values())
    return Found(blocks_of(cells, top), paths, seconds)


def placed(name, found, only=(), console=None):
    """Place the blocks of preset ``name`` with nextpnr; return ``{block: {"ratio", ...}}``.

    The other entries are those of :func:`weft.tb.sim.synth.place.place`. ``ratio`` is relative to the frequency of
    :data:`weft.tb.sim.synth.place.REFERENCE`, which is always placed. ``found`` is the result of :func:`run` for that
    preset, ``only`` the subsystems to place; by default all.
    """
    console, modules = console or Console(), mapped.modules_of(verilog(name))
    subsystems = only or [block for block in found.blocks if block and "." not in block]
    blocks = list(dict.fromkeys([place.REFERENCE, *place.chosen(found.blocks, subsystems)]))

    def finished(top, each):
        console.print(f"{name}: {top.removeprefix(CARD_MODULE + '.')} placed, {each['mhz']:.1f} MHz, "
                      f"{each['luts']:,} LUT4", style="dim", highlight=False)

    results = place.place(modules, [f"{CARD_MODULE}.{block}" for block in blocks], finished)
    results = dict(zip(blocks, results.values(), strict=True))
    reference = results[place.REFERENCE]["mhz"]
    return {block: {**each, "ratio": round(each["mhz"] / reference, 3)} for block, each in results.items()}


def verilog(name, **options):
    """Return the Verilog of the card of a preset with changed fields of ``CardParams``."""
    return card_text(preset(name).with_(**options))


def _paths(top, digests):
    """Return the worst paths of a module and everything below it, cached by content."""
    inside = sorted((module, digest) for module, digest in digests.items() if f"{module}.".startswith(f"{top}."))
    made = json.dumps([inside, sources("tb/sim/synth/path.py")])
    where = mapped.KEPT / f"paths-{hashlib.sha256(made.encode()).hexdigest()[:16]}.json"
    if not where.exists():
        flat = linked(top, lambda module: mapped.netlist(digests[module]))
        where.write_text(json.dumps([asdict(path) for path in worst_paths(flat, PATHS)]))
    return json.loads(where.read_text())


def run(names, depth=1, only=(), shown=1, console=None, **options):
    """Synthesize presets, print a table of each preset's blocks down to ``depth``, and write the report.

    With ``only``, synthesize these subsystems and write no report. ``shown`` paths of each subsystem are printed;
    ``options`` are changed fields of the cards' ``CardParams``. Returns ``{preset: Found}``.

    Raises
    ------
    NoSuchSubsystem
    """
    console, found = console or Console(), {}
    for name in names:
        with console.status(f"writing the card's Verilog, preset {name}") as status:
            subsystems = subsystems_of(verilog(name, **options))
            for subsystem in only:
                if subsystem not in subsystems or not subsystem:
                    known = ', '.join(filter(None, subsystems))
                    raise NoSuchSubsystem(f"there is no subsystem {subsystem!r}; choose one of {known}")
            subsystems = {subsystem: subsystems[subsystem] for subsystem in subsystems if subsystem in only or not only}
            left = {subsystem or "card" for subsystem in subsystems}

            def finished(subsystem, modules, seconds, name=name, left=left, status=status):
                left.discard(subsystem)
                status.update(f"preset {name}, to do: {', '.join(sorted(left)) or 'paths'}")
                if modules:
                    console.print(f"{name}: {subsystem}, {modules} blocks synthesised in {seconds:.0f} s of CPU",
                                  style="dim", highlight=False)

            status.update(f"preset {name}: synthesising")
            found[name] = synthesise(subsystems, finished)
        _show(console, name, found[name], depth, shown)
    console.print(f"paths: {CONSTANTS}; nothing is placed", style="dim")
    if not only:
        reports = [{"preset": name, "blocks": each.blocks,
                    "paths": {subsystem: paths[0] for subsystem, paths in each.paths.items() if paths},
                    "seconds": {subsystem: round(seconds, 1) for subsystem, seconds in each.seconds.items()}}
                   for name, each in found.items()]
        text = json.dumps({**reports[0], "yosys": yosys.version(), "others": reports[1:]}, indent=1)
        write_whole(REPORT, text + "\n")
        console.print(f"report {REPORT}", style="dim", soft_wrap=True)
    return found


def show_placed(name, placed):
    """Print the result of :func:`placed`, slowest block first."""
    table = plain_table("block", "MHz", f"of {place.REFERENCE}", "routing", "LUT4", "s", left=("block",),
                        title=f"preset {name}, placed and routed", title_justify="left")
    for block, each in sorted(placed.items(), key=lambda item: item[1]["mhz"]):
        table.add_row(block, f"{each['mhz']:.1f}", f"{each['ratio']:.2f}", f"{each['routing']:.0%}",
                      f"{each['luts']:,}", f"{each['seconds']}")
    Console().print(table)


def _show(console, name, found, depth, shown):
    kinds = [kind for kind in KINDS if any(counts[kind] for counts in found.blocks.values())]
    table = plain_table("block", *kinds, "levels", "path, ns", "CPU, s", left=("block",), title=f"preset {name}",
                        title_justify="left")
    rows = [block for block in sorted(found.blocks) if block and block.count(".") < depth]
    for block in [*rows, ""]:
        path = next(iter(found.paths.get(block, ())), None)
        table.add_row(block or "card", *(f"{found.blocks[block][kind]:,}" for kind in kinds),
                      *((str(path["levels"]), f"{path['ns']:.2f}") if path else ("", "")),
                      f"{found.seconds[block]:.0f}" if block in found.seconds else "", style="" if block else "bold")
    console.print(table)
    for subsystem, paths in sorted(found.paths.items(),
                                   key=lambda item: -max((path["ns"] for path in item[1]), default=0)):
        for path in paths[:shown]:
            console.print(f"  {subsystem or 'card'} {path['ns']:.2f} ns, {path['levels']} levels: "
                          f"{path['start']} → {path['end']}", style="dim", soft_wrap=True, highlight=False)
            if shown > 1:
                for net, ns in path["via"][1:-1]:
                    console.print(f"      {ns:5.2f}  {net}", style="dim", soft_wrap=True, highlight=False)
