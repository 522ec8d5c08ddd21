"""Lint of the generated Verilog: Verilator ``-Wall`` with waivers, and Yosys ``check -assert``.

Combinational loops are found earlier: :mod:`weft.hdl.verilog.self_reading` rejects them when Verilog is written.
"""

import os
from pathlib import Path

from weft.tb.sim.flow import process, simulators
from weft.tb.sim.flow.failure import Failure
from weft.tb.sim.flow.verilator import WARNINGS
from weft.tb.sim.synth import yosys as yosys_tool


class LintFailed(Failure):
    """The Verilog has a fault that no waiver covers. The message lists the first faults."""


def verilator_lint(path, top):
    """Lint the Verilog file ``path``; raise :class:`LintFailed` with the warnings that no waiver covers."""
    command, environment = simulators.Verilator.program(
        "--lint-only", *WARNINGS, "--top-module", top, Path(path).name)
    status, output = process.output_of(command, cwd=Path(path).parent, environment={**os.environ, **environment})
    if status or "%Warning" in output:
        raise LintFailed(f"{path}: verilator -Wall reports\n{output[:4000]}")


def yosys(path, script):
    """Run a Yosys script in the folder of the Verilog file ``path``; return its output or raise :class:`LintFailed`."""
    yosys_tool.version()
    status, output = process.output_of(yosys_tool.yosys(script), cwd=Path(path).parent)
    if status:
        raise LintFailed(f"{path}: yosys ended with status {status} and its output ends with\n{output[-4000:]}")
    return output


def yosys_check(path, top):
    """Read, elaborate and check the Verilog file ``path`` with Yosys; raise :class:`LintFailed` on any problem."""
    yosys(path, f"read_verilog {Path(path).name}; hierarchy -check -top {top}; proc; opt_clean; check -assert")


def lint(path, top):
    """Run both lints."""
    verilator_lint(path, top)
    yosys_check(path, top)
