"""The two simulators by name, and the calls of Icarus."""

import functools
import subprocess

from weft.hdl.verilog import plain_assertions
from weft.tb.sim.flow.tools import MissingTool, build_commands, cocotb_environment, need
from weft.tb.sim.flow.verilator import Verilator

__all__ = ["SIMULATORS", "MissingTool", "Verilator", "tool"]


class Icarus:
    """Icarus Verilog.

    It compiles Verilog-2005, not SystemVerilog: initial values of registers must be events at time zero, see
    :mod:`weft.hdl.verilog`.
    """

    OPTIONS_VERSION = 5
    PATH_BYTES = 4096

    @staticmethod
    def check():
        need("iverilog", "iverilog")

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
        build_commands([["iverilog", "-g2005", "-o", "sim.vvp", *tops, "-f", "timescale.f", *sources]], where, log)

    @staticmethod
    def command(where, *, top, run, waves):
        import cocotb_tools.config as config

        arguments = ["-fst", f"+waves={run / 'waves.fst'}"] if waves else ["-none"]
        return (["vvp", "-m", config.lib_entry("vpi", "icarus"), str(where / "sim.vvp"), *arguments],
                dict(cocotb_environment()))


_TOOLS = {"icarus": Icarus, "verilator": Verilator}
SIMULATORS = list(_TOOLS)


def tool(sim):
    """Return the simulator called ``sim``; raise ``ValueError`` with the known names if the name is unknown."""
    if sim not in _TOOLS:
        raise ValueError(f"unknown simulator {sim!r}; choose one of {', '.join(SIMULATORS)}")
    return _TOOLS[sim]
