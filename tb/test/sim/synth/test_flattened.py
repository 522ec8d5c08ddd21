"""Tests with blocks of a small design, mapped with and without their boundaries."""

import re

import pytest

from weft.hdl.verilog import CARD_MODULE
from weft.tb.sim.synth import flattened, yosys

TOP = "top"
MODULES = {
    TOP: "module top(clk, a, o);\n  input clk;\n  input [7:0] a;\n  output o;\n  wire x;\n  wire y;\n"
         "  \\top.any any (\n    .a(a),\n    .o(x)\n  );\n"
         "  \\top.kept$3 kept (\n    .clk(clk),\n    .d(x),\n    .q(y)\n  );\n  assign o = ~y;\nendmodule\n",
    "top.any": "module \\top.any (a, o);\n  input [7:0] a;\n  output o;\n  assign o = |a;\nendmodule\n",
    "top.kept$3": "module \\top.kept$3 (clk, d, q);\n  input clk;\n  input d;\n  output q;\n  reg q;\n"
                  "  always @(posedge clk) q <= ~d;\nendmodule\n",
}


@pytest.mark.parametrize(("form", "left"), [
    ("blocks", {TOP, "top.any", "top.kept$3"}), ("folded", {TOP, "top.kept$3"}), ("flat", {TOP}),
    ("kept", {TOP, "top.any"}), ("any+kept", {TOP})])
def test_boundaries(form, left):
    assert flattened.boundaries(form, TOP, MODULES) == left


def test_unknown_block_is_rejected():
    with pytest.raises(ValueError, match="not all of any.gone are blocks below top"):
        flattened.boundaries("any.gone", TOP, MODULES)


def test_logic_across_a_boundary_is_mapped_together_without_it(tmp_path, monkeypatch, capsys):
    card = f"module {CARD_MODULE}(i);\n  input i;\nendmodule\n"
    text = "".join(MODULES.values()).replace("top", f"{CARD_MODULE}.top").replace(
        f"module {CARD_MODULE}.top(", f"module \\{CARD_MODULE}.top (")
    monkeypatch.setattr(flattened, "KEPT", tmp_path)
    monkeypatch.setattr(flattened.synth, "verilog", lambda preset: f"{card}{text}")
    command = [TOP, "--form", "blocks", "--form", "flat"]
    flattened.main(command)
    printed = capsys.readouterr().out
    blocks, flat = (
        [float(word) for word in re.search(rf"^ *{form}((?: +[\d.]+){{5}})", printed, re.MULTILINE)[1].split()]
        for form in ("blocks", "flat"))      # blocks, LUTs, flip-flops, carry, ns
    assert (blocks[0], flat[0]) == (3, 1) and blocks[2] == flat[2] == 1
    assert flat[1] < blocks[1] and flat[4] <= blocks[4]
    monkeypatch.setattr(yosys.process, "run", None)      # cached results are not mapped again
    flattened.main(command)
    assert capsys.readouterr().out == printed
