"""Tests that the command lines of long commands reach their functions with the right arguments.

The functions themselves do not run here: the table of commands (``verify/document/command_table.py``) names tests of
their parts.
"""

from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from weft.hdl.contract import params
from weft.tb.app.machine.settings import BACKENDS
from weft.tb.app.serve.environment import BUILD_ROOT
from weft.tb.cli import app
from weft.tb.verify.mutate.subsystems import COUNT, SEED

CARD = params.preset("basic")
SYNTH = {"straddle": False, "mac_clock": False}
# Command line: module and name of the function, its arguments, and functions to replace: module, name and result.
COMMANDS = {
    "weft bench": ("verify.bench.run", "run", ([],), {}),
    "weft conformance": ("verify.conformance.devices", "on_backends",
                         (BUILD_ROOT, (), (), Path("found.json")), {}),
    "weft coverage": ("verify.mutate.coverage", "run", (), {}),
    "weft interop": ("verify.interop.cases", "cases", (False,), {}),
    "weft linux": ("verify.linux.run", "run", (BACKENDS,), {}),
    "weft linux --backend rtl": ("verify.linux.run", "run", (("rtl",),), {}),
    "weft mutants": ("verify.mutate.run", "run", ([], COUNT, SEED, 2), {}),
    "weft mutants --only ring": ("verify.mutate.run", "run", (["ring"], COUNT, SEED, 2), {}),
    "weft soak": ("verify.soak.runs", "run", (600,), {}),
    "weft soft-server --tap weft0": ("driver.soft.ports.tap", "TapPort", ("weft0",), {}),
    "weft synth --preset basic --preset full": ("sim.synth.synth", "run", (["basic", "full"], 1, (), 1), SYNTH),
    "weft synth --preset basic --only adamap --depth 3 --paths 10": (
        "sim.synth.synth", "run", (["basic"], 3, ["adamap"], 10), SYNTH),
    "weft synth --preset basic --place --only command": (
        "sim.synth.synth", "placed", ("basic", "blocks", ["command"]), {}),
    "weft verilog --preset basic": ("hdl.verilog", "card_verilog", (CARD,), {}),
    "weft verilog --preset basic --straddle": ("hdl.verilog", "card_verilog", (CARD.with_(straddle=True),), {}),
    "weft verilog --preset basic --board u50": ("hdl.verilog", "card_verilog", (CARD.with_(mac_clock=True),), {}),
}
BEFORE = {"placed": [("sim.synth.synth", "run", {"basic": "blocks"}), ("sim.synth.figures", "rows", [])]}


def module(name):
    return import_module(f"weft.{name}" if name.startswith(("driver", "hdl")) else f"weft.tb.{name}")


@pytest.mark.parametrize("command", COMMANDS)
def test_options_reach_the_function(command, monkeypatch, tmp_path):
    place, name, *expected = COMMANDS[command]
    seen = []

    def called(*arguments, **options):
        seen.append([arguments, options])
        raise typer.Exit(3)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module(place), name, called)
    for other, replaced, result in BEFORE.get(name, ()):
        monkeypatch.setattr(module(other), replaced, lambda *_, result=result, **__: result)
    words = command.split()[1:] + ["--json", "found.json"] * (command == "weft conformance")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 3, done.output
    assert seen == [expected]


def test_a_software_host_needs_a_port_for_its_frames():
    done = CliRunner().invoke(app, ["soft-server"])
    assert done.exit_code == 2 and "give --qemu or --tap" in done.output
