"""Tests of synthesis by block: blocks are cut out, mapped, cached, counted and placed."""

import re
from collections import Counter

import pytest

from weft.tb.sim.synth import mapped, nexus, place, synth
from weft.tb.sim.synth.figures import rows
from weft.tb.sim.synth.synth import Found
from weft.tb.sim.synth.yosys import SynthesisFailed

# An array at a port, driven by a sub-block: the element `o[1]` and the second bit of `o` have one name for ABC.
DESIGN = r"""
module \weft_card (clk, i, o, parity);
  input clk;
  wire clk;
  input [7:0] i;
  wire [7:0] i;
  output [7:0] o;
  wire [7:0] o;
  output parity;
  wire parity;
  \weft_card.half  half (
    .clk(clk),
    .i(i),
    .o(o),
    .parity(parity)
  );
endmodule

module \weft_card.half (clk, i, o, parity);
  input clk;
  wire clk;
  input [7:0] i;
  wire [7:0] i;
  output [7:0] o;
  reg [7:0] o;
  output parity;
  reg parity = 1'h0;
  wire [3:0] \o[0] ;
  wire [3:0] \o[1] ;
  wire [3:0] sum;
  wire [3:0] high;
  assign \o[0]  = o[3:0];
  assign \o[1]  = o[7:4];
  always @* begin
    o = 8'h00;
    o[3:0] = sum;
    o[7:4] = high;
  end
  \weft_card.half.add  add (
    .a(i[3:0]),
    .b(i[7:4]),
    .o(sum),
    .high(high)
  );
  always @(posedge clk)
    parity <= sum[3] ^ sum[2] ^ high[1];
endmodule

module \weft_card.half.add (a, b, o, high);
  input [3:0] a;
  wire [3:0] a;
  input [3:0] b;
  wire [3:0] b;
  output [3:0] o;
  wire [3:0] o;
  output [3:0] high;
  wire [3:0] high;
  assign o = a ^ (b << 1);
  assign high = a & b;
endmodule
"""


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "KEPT", tmp_path)
    return tmp_path


def test_card_is_mapped_by_block_and_cached(kept):
    """One run of Yosys maps all blocks; it takes most of the time."""
    phases = []
    found = synth.synthesise({"": mapped.modules_of(DESIGN)}, lambda *progress: phases.append(progress[:2]))
    assert phases == [("card", 3)]
    assert found.blocks[""] == found.blocks["half"] and found.blocks["half"]["ff"] == 1
    assert found.blocks["half.add"]["lut"] == 7 and found.blocks["half"]["lut"] == 8
    # through the sub-block to the register: a LUT each
    card, = found.paths[""][:1]
    assert (card["levels"], card["ns"], card["start"], card["end"]) == (2, 0.6, "i", "half.parity")
    assert "half.add.o" in dict(card["via"])

    phases.clear()
    changed = mapped.modules_of(DESIGN.replace("b << 1", "b << 2"))
    there = {name for name in changed if (kept / f"{mapped.digest(name, changed)}.json").exists()}
    assert there == {"weft_card", "weft_card.half"}
    assert synth.synthesise(synth.subsystems_of(DESIGN),
                            lambda *progress: phases.append(progress[1])).blocks == found.blocks
    assert phases == [0, 0]


def test_mapper_delays_equal_those_of_the_estimate(kept):
    """192 bits take three levels of LUTs with six inputs; a mapper with too large a delay for such a LUT takes five."""
    ports = "".join(f"  input [63:0] {name};\n" for name in "abc")
    wide = f"module \\wide (a, b, c, o);\n{ports}  output o;\n  assign o = |(a & b & c);\nendmodule\n"
    found = synth.synthesise({"": mapped.modules_of(wide)}, top="wide")
    assert max(path["levels"] for path in found.paths[""]) == 3 and found.blocks[""]["lut"] < 50


def test_last_line_of_yosys_is_reported(kept):
    subsystems = synth.subsystems_of(DESIGN.replace("b << 1", "b <<"))
    with pytest.raises(SynthesisFailed, match="half: Yosys ended .*(?s:.*)syntax error"):
        synth.synthesise({"half": subsystems["half"]})


def test_small_blocks_share_a_yosys_run():
    modules = {"a": "x" * 60_000, "b": "x" * 80_000, "c": "x" * 20_000, "d": "x" * 200_000, "e": "x"}
    assert mapped._parts(list(modules), modules) == [["a", "b"], ["c"], ["d"], ["e"]]
    assert mapped._parts([], modules) == []
    modules["c"] += mapped.ULTRA
    assert mapped._parts(list(modules), modules) == [["a", "b"], ["d"], ["e"], ["c"]]


def test_deep_memory_with_the_attribute_is_ultraram(kept):
    """With two readers, a memory with two ports is duplicated."""
    table = f"""
module \\table (clk, w, d, r0, r1, q0, q1);
  input clk;
  input [12:0] w;
  input [39:0] d;
  input [12:0] r0;
  input [12:0] r1;
  output reg [39:0] q0;
  output reg [39:0] q1;
  (* {mapped.ULTRA} *)
  reg [39:0] memory [8191:0];
  initial begin : fill_memory
    integer row;
    for (row = 0; row <= 8191; row = row + 1)
      memory[row] = 40'h0000000000;
  end
  always @(posedge clk) begin
    memory[w] <= d;
    q0 <= memory[r0];
    q1 <= memory[r1];
  end
endmodule
"""
    modules, filled = (mapped.modules_of(text) for text in (table, table.replace("40'h0000000000", "40'h1")))
    assert "fill" not in modules["table"] and "fill" in filled["table"]     # UltraRAM starts with zeros
    blocks = synth.synthesise({"": modules}, top="table").blocks[""]
    assert blocks["uram"] == 4 and blocks["bram36"] == blocks["bram18"] == 0


def test_block_is_cached_by_content():
    moved = mapped.modules_of(DESIGN.replace("weft_card.half.add", "weft_card.half.sum"))
    here = mapped.modules_of(DESIGN)
    assert mapped.digest("weft_card.half.add", here) == mapped.digest("weft_card.half.sum", moved)
    wider = mapped.modules_of(DESIGN.replace("output [3:0] o", "output [4:0] o"))
    assert mapped.digest("weft_card.half", here) != mapped.digest("weft_card.half", wider)


def test_unnamed_port_is_named_by_position(kept):
    """Its number counts the nets of the whole design: without renaming, any change would change every block."""
    def numbered(high, parity):
        changed = re.sub(r"\bhigh\b", lambda _: rf"\port${high}$0 ", DESIGN)
        return mapped.modules_of(re.sub(r"\bparity\b", lambda _: rf"\port${parity}$0 ", changed))

    here, there = numbered(7, 12), numbered(12, 3568)       # an input of one block, an output of the other
    assert here == there
    assert r".\port$0 (\port$1 )" in here["weft_card.half"] and "$12" not in "".join(here.values())
    blocks = synth.synthesise({"": here}).blocks
    assert (blocks["half.add"]["lut"], blocks["half"]["lut"], blocks[""]["ff"]) == (7, 8, 1)


def test_a_register_of_yosys_is_numbered_in_its_module():
    """The original number is the one of an object of the whole design."""
    def numbered(first):
        *bodies, rest = DESIGN.split("endmodule")
        return mapped.modules_of("".join(
            rf"{body}  reg \$auto$verilog_backend.cc:1:dump_module${first + k}  = 0;" "\nendmodule"
            for k, body in enumerate(bodies)) + rest)

    assert numbered(3) == numbered(77)


def test_cells_are_counted_by_block_and_kind():
    blocks = synth.blocks_of({
        "weft_card": {"LUT2": 1}, "weft_card.a": {"LUT6": 2, "FDRE": 3, "RAM32M": 1},
        "weft_card.a.b": {"FDSE": 4, "RAMB36E2": 5}, "other": {"LUT2": 9}})
    assert set(blocks) == {"", "a", "a.b"}
    assert [blocks[block]["ff"] for block in ("", "a", "a.b")] == [7, 7, 4]
    assert (blocks[""]["lut"], blocks["a"]["lut"], blocks[""]["lutram"], blocks["a"]["bram36"]) == (3, 2, 1, 5)


def test_subsystems_are_extracted_with_their_blocks():
    subsystems = synth.subsystems_of(DESIGN)
    assert {subsystem: sorted(modules) for subsystem, modules in subsystems.items()} == {
        "": ["weft_card"], "half": ["weft_card.half", "weft_card.half.add"]}


def test_figures_of_synthesis():
    """Missing blocks have no figure; the worst path is that of both larger presets."""
    def found(lut, bram18=0, **paths):
        return Found({"": {"bram36": 3, "bram18": bram18, "uram": 2, "lut": 9}, "adamap": {"lut": lut}},
                     {subsystem: [{"ns": ns}, {"ns": 0.1}] for subsystem, ns in paths.items()} | {"empty": []}, {})

    def figures(presets):
        return {row.name: (row.value, row.unit) for row in rows(presets)}

    basic, full = found(7, adamap=3.0), found(8, bram18=5, adamap=4.0, csr=5.5)
    assert figures({"test": found(1, csr=9.0)}) == {}
    assert figures({"basic": basic}) == {"synth_lut_adamap_basic": (7, "LUT")}
    assert not figures({"basic": Found({"": {}, "rings": {"lut": 3}}, {}, {})}), "some subsystems alone"
    assert figures({"basic": basic, "full": full, "test": found(1, csr=9.0)}) == {
        "synth_worst_path_ns": (5.5, "ns"), "synth_bram36_full": (5.5, "block RAMs"),
        "synth_uram_full": (2, "UltraRAMs"), "synth_lut_adamap_basic": (7, "LUT")}


def test_large_subsystem_is_placed_by_blocks():
    def cells(lut, bram36=0, uram=0):
        return {"lut": lut, "bram36": bram36, "bram18": 1, "uram": uram, "ff": 1}

    assert place.chosen({
        "": cells(90_000), "a": cells(50_000), "a.b": cells(10_000), "a.c": cells(20_000, 9), "a.c.d": cells(9),
        "a.c.e": cells(0), "a.b.f": cells(5), "g": cells(5), "h": cells(5, 300), "k": cells(5, 0, 20)},
        ["a", "g", "h", "k"]) == ["a.b", "a.c.d", "g"]


def test_a_harness_has_a_register_at_every_port():
    text = nexus.harness("weft_card.half", mapped.modules_of(DESIGN)["weft_card.half"])
    assert ".clk(clk)" in text and text.count("FD1P3IX") == 8 + 8 + 1
    assert text.count(".D(1'b0), .Q(") == 8, "inputs get nothing"


def test_a_carry_that_begins_with_a_constant_is_left_open():
    def chain(first, begin):
        return {"type": "CCU2", "parameters": {"INIT0": first}, "connections": {"CIN": begin, "A0": [7]},
                "port_directions": {"CIN": "input", "A0": "input"}}

    cells = {"one": {"type": "VHI", "connections": {"Z": [5]}}, "a": chain("0xFFFF", [5]), "b": chain("0x96AA", [9]),
             "c": chain("0xFFFF", ["x"])}
    nexus.without_constant_carries({"modules": {"block": {"cells": cells}}})
    assert [name for name, cell in cells.items() if "CIN" in cell["connections"]] == ["b"]
    assert set(cells["a"]["port_directions"]) == {"A0"}
    with pytest.raises(AssertionError, match="uses its first carry"):
        nexus.without_constant_carries({"modules": {"block": {"cells": {"a": chain("0x96AA", ["0"])}}}})


def cell_of(kind, **ports):
    """Return a cell of a netlist, with a bit at each port."""
    return {"type": kind, "connections": {port: [bit] for port, bit in ports.items()},
            "port_directions": {port: "output" if port in "QZ" else "input" for port in ports}}


def test_cells_of_many_loads_are_copied():
    """Each load keeps its signal, from one of the copies; cells of few loads are unchanged."""
    cells = {"many": cell_of("FD1P3IX", CK=1, D=2, Q=3), "few": cell_of("LUT4", A=3, Z=4),
             **{f"load_{k}": cell_of("LUT4", A=3, B=4 if k < 2 else 2, Z=10 + k) for k in range(11)}}
    nets = {f"net_{bit}": {"bits": [bit]} for bit in (1, 2, 3, 4, *range(10, 21))}
    nexus.with_copies({"modules": {"block": {"cells": cells, "netnames": nets}}}, 5)
    copies = {name: cell for name, cell in cells.items() if name.startswith("many")}
    assert len(copies) == 3 and not [name for name in cells if "copy" in name and not name.startswith("many")]
    assert all(cell["connections"]["D"] == [2] and cell["connections"]["CK"] == [1] for cell in copies.values())
    phases = [cells[name]["connections"]["A"][0] for name in ("few", *(f"load_{k}" for k in range(11)))]
    assert sorted(phases.count(cell["connections"]["Q"][0]) for cell in copies.values()) == [4, 4, 4]
    assert phases[1:] == sorted(phases[1:], key=phases[1:].index)      # neighbours share a copy


def test_copies_of_a_lut_are_separate_loads():
    cells = {"register": cell_of("FD1P3IX", D=1, Q=2), "lut": cell_of("LUT4", A=2, Z=3),
             **{f"load_{k}": cell_of("FD1P3IX", D=3, Q=10 + k) for k in range(6)}}
    nets = {"all": {"bits": [1, 2, 3, *range(10, 16)]}}
    nexus.with_copies({"modules": {"block": {"cells": cells, "netnames": nets}}}, 2)
    phases = Counter(cell["connections"]["A"][0] for name, cell in cells.items() if name.startswith("lut"))
    assert sorted(phases.values()) == [1, 2], "three LUTs, of which two share a register"


def test_netlist_carries_settings_without_a_nextpnr_option():
    netlist = {"modules": {"top": {"attributes": {"top": "1"}}, "cell": {"attributes": {"blackbox": "1"}}}}
    assert nexus.with_settings(netlist, {"a": "1"})["modules"] == {
        "top": {"attributes": {"top": "1"}, "settings": {"a": "1"}}, "cell": {"attributes": {"blackbox": "1"}}}


def test_blocks_are_placed_until_an_attempt_is_fast_enough(tmp_path, monkeypatch):
    """A counter and the parity of a sum; an attempt without routing is skipped, a result is cached."""
    monkeypatch.setattr(place, "BUILD_ROOT", tmp_path)
    monkeypatch.setattr(place, "TRIES", ((1, 4), (2, 8)))
    ports = "  input clk;\n  input [11:0] i;\n  output o;\n"
    modules = {
        "count": f"module count (clk, i, o);\n{ports}  reg [11:0] n;\n  always @(posedge clk) n <= n + i;\n"
                 "  assign o = n[11];\nendmodule\n",
        "long": f"module long (clk, i, o);\n{ports}  reg o;\n  reg [11:0] n;\n  always @(posedge clk) n <= n + i;\n"
                "  always @(posedge clk) o <= ^(((((n + i) ^ 12'd2741) + (n >> 3)) ^ i) + {n[4:0], i[6:0]} + n);\n"
                "endmodule\n"}
    phases = []
    placed = place.place(modules, ["count", "long"], lambda *progress: phases.append(progress))
    assert phases == [("count", placed["count"]), ("long", placed["long"])]
    assert place.BAR * placed["count"]["mhz"] > placed["long"]["mhz"] > 0
    assert placed["count"]["luts"] < placed["long"]["luts"]
    assert 0 < placed["count"]["routing"] < 1

    def tried():
        return sorted(len(list(where.glob("placed-*.json"))) for where in tmp_path.glob("place/*"))

    assert tried() == [2, 2], "the first one is measured with all, the other one is too slow"
    modules["same"] = modules["count"].replace("count", "same")
    place.place(modules, ["count", "same"])
    assert tried() == [1, 2, 2]
    run = nexus.run
    monkeypatch.setattr(nexus, "run", lambda where, seed, loads: run(where, seed, loads) if seed == 2 else None)
    modules["late"] = modules["count"].replace("count", "late")
    assert place.place(modules, ["late"])["late"]["mhz"] > 0
    assert tried() == [1, 1, 2, 2]
    monkeypatch.undo()
    monkeypatch.setattr(place, "BUILD_ROOT", tmp_path)
    monkeypatch.setattr(place, "TRIES", ((1, 4), (2, 8)))
    monkeypatch.setattr(nexus, "LIMIT_S", 0.01)
    assert place.place(modules, ["count", "long"]) == placed
    with pytest.raises(SynthesisFailed, match="wide could not be placed and routed, see .*nextpnr-2-8.log"):
        place.place({"wide": modules["count"].replace("count", "wide").replace("11", "12")}, ["wide"])
