"""Netlist of a design and small faults in it, by Yosys' pass ``mutate``, as in MCY.

A fault affects one bit of one port of one cell: the bit is inverted, stuck at 0 or 1, or inverted while another bit
of the port is 0 or 1. Yosys draws faults evenly over modules, cells, wires and lines of source.
"""

import hashlib
import re
import resource
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from weft.tb.sim.flow.simulate import locked
from weft.tb.sim.synth import yosys as tool

# Processes become multiplexers and registers. Unused cells are removed, so that few faults are without effect.
PREPARE = ("hierarchy -check -top {top}; proc; opt_expr; opt_clean; wreduce; opt -nodffe -nosdff; memory_collect; "
           "opt_clean -purge")
VERILOG = "pmuxtree; write_verilog -noattr"      # a `$pmux` would become a function, whose inputs look like ports
_MODULE = re.compile(r"^(?P<attributes>(?:attribute .*\n)*)module \\(?P<name>\S+)\n(?P<body>(?:.*\n)*?)end$",
                     re.MULTILINE)
_SOURCE = re.compile(r'^attribute \\src "([^":]*):[^"]*"$', re.MULTILINE)
_ANY_SOURCE = re.compile(r'^\s*attribute \\src .*\n', re.MULTILINE)
_COUNTED = re.compile(r"(\$auto\$[^ ]*\$|\$procmux\$|port\$)\d+")      # numbered across all modules of a design
_CELL = re.compile(r"^  cell ", re.MULTILINE)
_OPTION = re.compile(r"-(\w+) (\S+)")


class YosysFailed(Exception):
    """Yosys ended with an error, or exceeded its time. The message contains the end of its output."""


@dataclass(frozen=True)
class Part:
    """Module of a netlist."""

    file: str           # file of its class, relative to the project; empty if unknown
    cells: int
    digest: str         # of its text without the lines of source
    likeness: str       # see `likeness`


@dataclass(frozen=True)
class Netlist:
    """Design as cells, in ``folder/design.il``."""

    folder: Path
    top: str
    digest: str                         # of the whole text, without the lines of source
    parts: dict = field(repr=False)     # `Part` by name of the module


@dataclass(frozen=True)
class Mutation:
    """Fault: the options of ``mutate`` that make it, and the lines of source of its cell."""

    mode: str
    module: str
    cell: str
    port: str
    portbit: int
    ctrlbit: int | None
    wire: str
    sources: tuple

    @property
    def options(self):
        control = "" if self.ctrlbit is None else f" -ctrlbit {self.ctrlbit}"
        return (f"-mode {self.mode} -module {self.module} -cell {self.cell} -port {self.port} "
                f"-portbit {self.portbit}{control}")

    @property
    def place(self):
        """Readable location of the fault."""
        control = "" if self.ctrlbit is None else f" by bit {self.ctrlbit}"
        wire = f", {self.wire}" if self.wire else ""
        lines = ", ".join(line for line in self.sources if line.startswith("hdl/")) or "no separate line"
        return f"{self.mode} at {self.module} {self.cell}.{self.port}[{self.portbit}]{control}{wire} ({lines})"


def yosys(where, script, seconds=600):
    """Run Yosys in folder ``where`` with a limit of ``seconds`` of processor time; return its output."""
    return limited(tool.yosys(script), where, seconds)


def limited(command, where, seconds):
    """Run a command of :mod:`weft.tb.sim.synth.yosys` with such a limit; return its output, or raise YosysFailed."""
    with subprocess.Popen(command, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as process:
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds))
        output, _ = process.communicate()
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise YosysFailed(f"no end after {seconds} s of processor time: {command[-1]}")
    if process.returncode:
        raise YosysFailed(f"Yosys ended with status {process.returncode}: {command[-1]}\n{output[-2000:]}")
    return output


def netlist(rtlil, top, root):
    """Return the :class:`Netlist` of RTLIL text with ``src`` attributes, in a separate folder below ``root``."""
    name = hashlib.sha256("\0".join([rtlil, top, PREPARE]).encode()).hexdigest()[:12]
    where = root / name
    where.mkdir(parents=True, exist_ok=True)
    with locked(where / "lock"):
        if not (where / "design.il").exists():
            (where / "elaborated.il").write_text(rtlil)
            yosys(where, f"read_rtlil elaborated.il; {PREPARE.format(top=top)}; write_rtlil design.part")
            (where / "design.part").rename(where / "design.il")
    text = (where / "design.il").read_text()
    parts = {}
    for module in _MODULE.finditer(text):
        source = _SOURCE.search(module["attributes"])
        body = _ANY_SOURCE.sub("", module["body"])
        parts[module["name"]] = Part(source[1] if source else "", len(_CELL.findall(body)), _digest(body),
                                     likeness(body))
    return Netlist(where, top, _digest("".join(f"{name} {part.digest}" for name, part in parts.items())), parts)


def likeness(body):
    """Return the digest of a module's text without parts that depend on other modules: some numbers, order of lines."""
    return _digest("\n".join(sorted(_COUNTED.sub(r"\1", body).splitlines())))


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def draw(design, modules, count, seed):
    """Return ``count`` mutations of the named modules, drawn evenly by ``seed``; fewer if there are not as many."""
    if not modules or not count:
        return []
    drawn = design.folder / f"drawn-{_digest(' '.join(modules))}-{count}-{seed}.txt"
    with locked(drawn.with_suffix(".lock")):
        if not drawn.exists():
            yosys(design.folder, f"read_rtlil design.il; mutate -list {count} -seed {seed} -o drawn.part "
                                 + " ".join(modules))
            (design.folder / "drawn.part").rename(drawn)
    return [_mutation(line) for line in drawn.read_text().splitlines() if line.startswith("mutate ")]


def _mutation(line):
    options = _OPTION.findall(line)
    found = dict(options)
    return Mutation(found["mode"], found["module"], found["cell"], found["port"], int(found["portbit"]),
                    int(found["ctrlbit"]) if "ctrlbit" in found else None, found.get("wire", "").lstrip("\\"),
                    tuple(value for name, value in options if name == "src"))


def write_faulty(design, mutation, where, file):
    """Write the netlist, with any fault, to ``where/file``, as Verilog (``.v``) or else as RTLIL; return the path."""
    where.mkdir(parents=True, exist_ok=True)
    shutil.copy(design.folder / "design.il", where)     # no path in a script: a path may contain spaces
    change = f"mutate {mutation.options}; " if mutation else ""
    yosys(where, f"read_rtlil design.il; {change}{VERILOG if file.endswith('.v') else 'write_rtlil'} {file}")
    return where / file
