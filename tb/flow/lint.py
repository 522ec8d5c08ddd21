"""Lint of the generated Verilog: Verilator ``-Wall`` with waivers, and Yosys ``check -assert``.

Signals computed from themselves never get as far: :mod:`weft.hdl.verilog.self_reading` refuses them when Verilog is
written.
"""

import os
from pathlib import Path

from weft.tb.flow import process, simulators
from weft.tb.flow import yosys as yosys_tool
from weft.tb.flow.failure import Failure

# What the Verilog back end of Amaranth writes by construction; anything else fails the lint.
WAIVERS = {
    "DECLFILENAME": "all modules are in one file",
    "UNUSEDSIGNAL": "structs carry fields that one block or another does not read",
    "VARHIDDEN": "names of inner scopes may repeat outer ones",
    "WIDTHEXPAND": "constants are written with the bits they need and extended by value",
    "WIDTHTRUNC": "a bit selected by an index is written as a shift whose low bit is taken",
    "CASEINCOMPLETE": "a switch without a default keeps what was assigned before it",
    "CMPCONST": "a comparison that a parameter makes constant",
    "UNSIGNED": "a comparison that a parameter makes constant",
    "PROCASSINIT": "registers have an initial value and a process: that is how reset values reach an FPGA",
}


class LintFailed(Failure):
    """The Verilog has a fault that no waiver covers. The message lists the first ones."""


def verilator_lint(path, top):
    """Lint the Verilog file ``path``; raise :class:`LintFailed` with the warnings that no waiver covers."""
    command, environment = simulators.Verilator.program(
        "--lint-only", "-Wall", "--top-module", top, *[f"-Wno-{name}" for name in WAIVERS], Path(path).name)
    status, said = process.output_of(command, cwd=Path(path).parent, environment={**os.environ, **environment})
    if status or "%Warning" in said:
        raise LintFailed(f"{path}: verilator -Wall says\n{said[:4000]}")


def yosys(path, script):
    """Run a Yosys script in the folder of the Verilog file ``path`` and return what it says.

    Raises
    ------
    LintFailed
        With the end of what it says.
    """
    yosys_tool.version()
    status, said = process.output_of(yosys_tool.yosys(script), cwd=Path(path).parent)
    if status:
        raise LintFailed(f"{path}: yosys ended with status {status} and says\n{said[-4000:]}")
    return said


def yosys_check(path, top):
    """Read, elaborate and check the Verilog file ``path`` with Yosys; raise :class:`LintFailed` on any problem."""
    yosys(path, f"read_verilog {Path(path).name}; hierarchy -check -top {top}; proc; opt_clean; check -assert")


def lint(path, top):
    """All of it."""
    verilator_lint(path, top)
    yosys_check(path, top)
