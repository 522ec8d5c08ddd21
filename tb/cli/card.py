"""``weft verilog``, ``synth``, ``regs``: Verilog, synthesis estimates and register map of the card."""

import tempfile
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from weft.hdl.contract import params
from weft.model.settings import PRESET, Setting
from weft.tb.cli.options import refuse, typed_command


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Card for certain surroundings."""

    preset: Annotated[str, PRESET] = "basic"
    board: Annotated[str | None, Setting("Write the files of a Vivado project around the card too, in its folder.",
                                         choices=("u50",))] = None
    debug: Annotated[bool, Setting("With --board: logic analysers on the streams.")] = False
    straddle: Annotated[bool, Setting("For a PCIe block with straddle.")] = False
    mac_clock: Annotated[bool, Setting("For a MAC with a separate clock; with --board always.")] = False

    @property
    def folder(self):
        """Return the name of the folder for the Verilog: cards with different ports have different ones."""
        options = {self.board: self.board, self.preset: True, "debug": self.debug, "straddle": self.straddle,
                   "mac-clock": self.mac_clock and not self.board}
        return "-".join(name for name, wanted in options.items() if wanted)

    def __str__(self):
        return f"preset {self.preset}{', straddle' * self.straddle}{', MAC clock' * self.mac_clock}"


def verilog(
    variant: Variant,
    output: Annotated[Path | None, Setting("File of the Verilog. Its folder is made.", metavar="PATH",
                                           default_text="sim_build/verilog/PRESET-OPTIONS/weft_card.v")] = None,
    lint: Annotated[bool, Setting("Check the result with Verilator -Wall, without the warnings that "
                                  "docs/integration.md waives.")] = True,
    yosys: Annotated[bool, Setting("Check it with Yosys too, as synthesis does.")] = False,
):
    """Write Verilog of the card for an FPGA, linted; with --board all files that Vivado needs for a bitstream."""
    if variant.debug and variant.board is None:
        refuse("--debug belongs to --board")
    variant = replace(variant, mac_clock=variant.mac_clock or variant.board is not None)
    card = params.preset(variant.preset).with_(straddle=variant.straddle, mac_clock=variant.mac_clock)
    start = time.monotonic()
    from weft.hdl.verilog import CARD_MODULE
    from weft.hdl.verilog.ports import annotated, instance_text
    from weft.tb.sim.flow.build import card_text
    console = Console(stderr=True)
    with console.status("generating Verilog"):
        text = card_text(card)
    output = output or Path("sim_build/verilog", variant.folder, f"{CARD_MODULE}.v")
    output.parent.mkdir(parents=True, exist_ok=True)
    heading = [f"Weft RDMA network card {version('weft-rnic')}, {variant}", f"made by: {typed_command()}",
               "SPDX-License-Identifier: Apache-2.0"]
    output.write_text(annotated(text, card, heading))
    output.with_name(f"{output.stem}_inst.v").write_text(instance_text(text, card, heading))
    size = f"{len(text) / 1e6:.1f} MB in {time.monotonic() - start:.0f} s"
    if lint or yosys:
        start = time.monotonic()
        with console.status("checking Verilog"):
            _check(output, CARD_MODULE, lint, yosys)
        size += f", lint clean in {time.monotonic() - start:.0f} s"
    print(f"{output}: module {CARD_MODULE}, {variant}, {size}")
    if variant.board is not None:
        _board(output.parent, card, variant.debug, lint, yosys)
    elif variant.mac_clock:
        from weft.hdl.mac.crossings import crossings_xdc
        constraints = output.with_suffix(".xdc")
        constraints.write_text(crossings_xdc())
        print(f"{constraints}: constraints between its clocks, to be read after synthesis")


def _check(path, top, lint, yosys):
    """Check a Verilog file with Verilator, with Yosys or with both."""
    from weft.tb.sim.synth.lint import verilator_lint, yosys_check
    for wanted, check in ((lint, verilator_lint), (yosys, yosys_check)):
        if wanted:
            check(path, top)


def _board(folder, card, debug, lint, yosys):
    """Write the files of the board next to the card's Verilog, and check the top with empty modules below it."""
    from weft.hdl.board.project import files
    from weft.hdl.board.u50 import TOP, stubs_text
    texts = files(card, debug=debug)
    for name, text in texts.items():
        (folder / name).write_text(text)
    size = ""
    if lint or yosys:
        with tempfile.TemporaryDirectory(prefix="weft-lint-") as scratch:
            whole = Path(scratch, f"{TOP}.v")
            whole.write_text(texts[f"{TOP}.v"] + stubs_text(debug=debug))
            _check(whole, TOP, lint, yosys)
        size = ", lint of the top clean with empty modules for the vendor's blocks"
    print(f"{folder}: {', '.join(texts)}{size}; nothing of it ran through Vivado. There, in this folder: "
          "vivado -mode batch -source build.tcl")


def synth(
    preset: Annotated[list[str] | None, replace(PRESET, help="Size of the card; may be given several times.",
                                                default_text="test")] = None,
    depth: Annotated[int, Setting("Levels of blocks shown.", least=1, most=9)] = 1,
    only: Annotated[list[str] | None, Setting("This subsystem alone, without a report; may be given several times.",
                                              metavar="NAME")] = None,
    paths: Annotated[int, Setting("Paths shown of each subsystem, with their signals.", least=1, most=12)] = 1,
    place: Annotated[bool, Setting("Place and route the first preset's subsystems, too.")] = False,
    straddle: Annotated[bool, Setting("With --only: of a card with straddle.")] = False,
    mac_clock: Annotated[bool, Setting("With --only: of a card whose MAC has a separate clock.")] = False,
):
    """Estimate cells, memories and longest path by block on an UltraScale+ FPGA, with Yosys.

    With --place also show the frequency that nextpnr reaches on a Nexus, relative to Translate. JSON is written to
    sim_build/reports/synth.json, figures to bench.json; the exit status is 1 if a figure misses its bar.
    """
    for name, wanted in (("--straddle", straddle), ("--mac-clock", mac_clock)):
        if wanted and (place or not only):
            refuse(f"{name} belongs to --only, without --place")
    presets = preset or ["test"]
    from weft.tb.sim.flow.figures import judged
    from weft.tb.sim.synth import synth as synthesis
    from weft.tb.sim.synth.figures import PLACED, placed_rows, rows
    try:
        found = synthesis.run(presets, depth, only or (), paths, straddle=straddle, mac_clock=mac_clock)
    except synthesis.NoSuchSubsystem as error:
        refuse(str(error))
    figures = rows(found)
    if place:
        placed = synthesis.placed(presets[0], found[presets[0]], only or ())
        synthesis.show_placed(presets[0], placed)
        figures += placed_rows(placed) if presets[0] == PLACED else []
    if not only and (status := judged("synth", figures, " ".join(["weft synth", *(
            f"--preset {name}" for name in presets), *(["--place"] if place else [])]))):
        raise typer.Exit(status)


def regs(output: Annotated[Path | None, Setting("Write there instead of to the terminal.", metavar="PATH")] = None):
    """Print the register map and host-visible layouts, as Markdown."""
    from weft.tb.app.device.registers import registers_markdown

    if output is None:
        print(registers_markdown(), end="")
    else:
        output.write_text(registers_markdown(), encoding="utf-8")
