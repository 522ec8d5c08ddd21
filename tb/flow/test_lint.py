"""The lint sees what it should."""

import pytest

from weft.tb.flow import lint, synth

CLEAN = "module top(input a, input b, output c); assign c = a & b; endmodule\n"


@pytest.fixture
def file_of(tmp_path):
    def write(text):
        path = tmp_path / "top.v"
        path.write_text(text)
        return path
    return write


def test_clean_verilog_passes(file_of):
    lint.lint(file_of(CLEAN), "top")


def test_verilator_warning_fails(file_of):
    with pytest.raises(lint.LintFailed, match="UNDRIVEN"):
        lint.verilator_lint(file_of(CLEAN.replace("assign c = a & b;", "wire d; assign c = d;")), "top")


@pytest.mark.parametrize("fault", ["assign c = ~c;", "assign c = a; assign c = b;", "wire d; assign c = d;"])
def test_yosys_finds_loops_and_drivers(file_of, fault):
    with pytest.raises(lint.LintFailed, match="problems in 'check -assert'"):
        lint.yosys_check(file_of(CLEAN.replace("assign c = a & b;", fault)), "top")


def test_cells_are_counted_by_block_and_kind():
    blocks = synth.blocks_of({
        "\\weft_card": {"num_cells_by_type": {"LUT2": 1, "\\weft_card.a": 1}},
        "\\weft_card.a": {"num_cells_by_type": {"LUT6": 2, "FDRE": 3, "RAM32M": 1}},
        "\\weft_card.a.b": {"num_cells_by_type": {"FDSE": 4, "RAMB36E2": 5}},
        "other": {"num_cells_by_type": {"LUT2": 9}},
    })
    assert set(blocks) == {"", "a", "a.b"}
    assert [blocks[block]["ff"] for block in ("", "a", "a.b")] == [7, 7, 4]
    assert (blocks[""]["lut"], blocks["a"]["lut"], blocks[""]["lutram"], blocks["a"]["bram36"]) == (3, 2, 1, 5)


def test_rooms_are_cut_out_with_what_is_below_them():
    rooms = synth.rooms_of("// a\nmodule weft_card(clk);\nendmodule\n\nmodule \\weft_card.b (clk);\nendmodule\n\n"
                           "module \\weft_card.b.c (clk);\nendmodule\n\nmodule \\weft_card.a (clk);\nendmodule\n")
    assert {room: (top, text.count("endmodule")) for room, (top, text) in rooms.items()} == {
        "a": ("\\weft_card.a", 1), "b": ("\\weft_card.b", 2)}


def test_figures_of_synthesis():
    """What was not synthesised makes no figure."""
    def blocks(lut, bram18=0):
        return {"": {"bram36": 3, "bram18": bram18, "uram": 2, "lut": 9}, "adamap": {"lut": lut}}

    basic = blocks(7), {"adamap": {"ns": 3.0}}
    full = blocks(8, bram18=5), {"adamap": {"ns": 4.0}, "csr": {"ns": 5.5}}
    assert synth.figures({"test": basic}) == {}
    assert synth.figures({"basic": basic}) == {"synth_lut_adamap_basic": (7, "LUT")}
    assert synth.figures({"basic": basic, "full": full}) == {
        "synth_worst_path_ns": (5.5, "ns"), "synth_bram36_full": (5.5, "block RAMs"),
        "synth_uram_full": (2, "UltraRAMs"), "synth_lut_adamap_basic": (7, "LUT")}
