"""Tests that lint detects its cases."""

import pytest

from weft.tb.sim.flow.build import build
from weft.tb.sim.synth import lint
from weft.tb.test.sim.synth.built_clean import built_clean

CLEAN = "module top(input a, input b, output c); assign c = a & b; endmodule\n"
OUTER = """module top(a, b, c);
  input a;
  input b;
  output c;
  inner inner(.a(a), .b(b), .c(c));
endmodule
"""


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


def test_warning_of_a_build_fails():
    """A warning inside a design, below ports that the bench drives and reads."""
    text = CLEAN.replace("module top", "module inner") + OUTER
    built_clean(build(text, top="top", name="lint", sim="verilator"))
    where = build(text.replace("a & b;", "a & b & d; wire d;"), top="top", name="lint", sim="verilator")
    with pytest.raises(lint.LintFailed, match="UNDRIVEN"):
        built_clean(where)


@pytest.mark.parametrize("fault", ["assign c = ~c;", "assign c = a; assign c = b;", "wire d; assign c = d;"])
def test_yosys_finds_loops_and_drivers(file_of, fault):
    with pytest.raises(lint.LintFailed, match="problems in 'check -assert'"):
        lint.yosys_check(file_of(CLEAN.replace("assign c = a & b;", fault)), "top")
