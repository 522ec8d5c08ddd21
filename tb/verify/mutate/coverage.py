"""``weft coverage``: lines and toggles of the generated Verilog that the block benches reach under Verilator.

As a plugin of pytest, the module adds coverage counters to every Verilator build. The counts of all runs of a design
are summed; ``sim_build/reports/coverage.json`` holds them by subsystem, and the folder next to it holds the Verilog
with the counts before its lines. A line is a branch of a process; a toggle is a bit that went up and down.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict

from rich.console import Console

from weft.tb.sim.flow.figures import plain_table
from weft.tb.sim.flow.simulate import BUILD_ROOT
from weft.tb.verify.mutate.sources import ROOT

FOLDER = BUILD_ROOT / "coverage"
REPORT, ANNOTATED = BUILD_ROOT / "reports/coverage.json", BUILD_ROOT / "reports/coverage"
FLAGS = ("--coverage-line", "--coverage-toggle")
# Counters make the code of a block five times as large, and a block runs for seconds: most of the time is compilation.
OPTIMIZE = ["OPT_FAST=-Og"]
BENCHES = ("tb/test/hdl",)
WORKERS = 2
COUNTS = "coverage.dat"
NOTHING_COLLECTED = 5       # exit status of pytest
KINDS = {"line": "line", "branch": "line", "toggle": "toggle"}
_POINT = re.compile(r"^C '(?P<point>.*)' (?P<count>\d+)$", re.MULTILINE)
_MODULE = re.compile(r"^export COCOTB_TEST_MODULES=weft\.tb\.(?:test\.hdl\.)?(\S+)$", re.MULTILINE)


def pytest_configure():
    """Add coverage counters to every design that Verilator builds from now on."""
    from weft.tb.sim.flow import cplusplus
    from weft.tb.sim.flow.verilator import Verilator

    cplusplus.OPTIMIZE = [*cplusplus.OPTIMIZE, *OPTIMIZE]
    plain = Verilator.program.__func__
    Verilator.program = classmethod(lambda cls, *arguments, **options: plain(
        cls, *(FLAGS if "--vpi" in arguments else ()), *arguments, **options))


def points(text):
    """Return ``{(kind, line, subject): count}`` of a ``coverage.dat``; ``kind`` is ``line`` or ``toggle``."""
    counts = Counter()
    for found in _POINT.finditer(text):
        fields = dict(field.split("\x02", 1) for field in found["point"].split("\x01")[1:])
        if (kind := KINDS.get(fields["t"])) is not None:
            subject = " ".join(fields.get(name, "") for name in "hon")      # hierarchy, object, column
            counts[kind, int(fields["l"]), subject] += int(found["count"])
    return counts


def subsystem_of(run):
    """Return the subsystem of a run folder: the folder of its module below ``tb/test/hdl``, or the file's name."""
    parts = _MODULE.search((run / "rerun.sh").read_text())[1].split(".")
    return parts[0] if len(parts) > 1 else parts[-1].removeprefix("test_")


def collect(folder):
    """Return ``{build folder: (subsystems, counts)}`` of all runs below ``folder`` that left counts."""
    designs = defaultdict(lambda: (set(), Counter()))
    for counts in sorted(folder.glob(f"*/*/{COUNTS}")):
        subsystems, added = designs[counts.parent.parent]
        subsystems.add(subsystem_of(counts.parent))
        added.update(points(counts.read_text(errors="replace")))
    return dict(designs)


def by_subsystem(designs):
    """Return ``{subsystem: {"line": [reached, all], "toggle": [reached, all]}}``."""
    subsystems = {}
    for names, counts in designs.values():
        for subsystem in names:
            of = subsystems.setdefault(subsystem, {"line": [0, 0], "toggle": [0, 0]})
            for (kind, _, _), count in counts.items():
                of[kind][0] += count > 0
                of[kind][1] += 1
    return dict(sorted(subsystems.items()))


def annotated(verilog, counts):
    """Return the Verilog text with, before each line that has points, the least of their counts."""
    least = {}
    for (_, line, _), count in counts.items():
        least[line] = min(count, least.get(line, count))
    return "".join(f"{least.get(number, ''):>10} {line}\n" for number, line in enumerate(verilog.splitlines(), 1))


def run(only=()):
    """Run the block benches, or ``only`` some, under Verilator and report the coverage; return the exit status.

    The elements of ``only`` are files and folders, as pytest takes them; with them no report is written.
    """
    for left in FOLDER.glob(f"*/*/{COUNTS}"):
        left.unlink()
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(WORKERS), "-p", __name__, "-k", "verilator",
               *(only or BENCHES)]
    status = subprocess.run(command, cwd=ROOT, env={**os.environ, "WEFT_BUILD": str(FOLDER)}).returncode
    if status == NOTHING_COLLECTED:
        print(f"weft: no bench in {' '.join(only)} runs under Verilator; the benches are in {BENCHES[0]}",
              file=sys.stderr)
        return 2
    if status:
        print("weft: a test fails, so its counts are invalid", file=sys.stderr)
        return 1
    designs = collect(FOLDER)
    subsystems = by_subsystem(designs)
    ANNOTATED.mkdir(parents=True, exist_ok=True)
    for build, (_, counts) in designs.items():
        verilog = next(build.glob("*.v"))
        (ANNOTATED / f"{build.name}.v").write_text(annotated(verilog.read_text(), counts))
    show(Console(), subsystems)
    if not only:
        REPORT.write_text(json.dumps(subsystems, indent=1) + "\n")
        print(f"report {REPORT}")
    return 0


def show(console, subsystems):
    """Print a table by subsystem."""
    table = plain_table("subsystem", "lines", "toggles", left=("subsystem",))
    for subsystem, kinds in subsystems.items():
        table.add_row(subsystem, *(f"{100 * reached / max(1, whole):.1f} % of {whole}"
                                   for reached, whole in (kinds["line"], kinds["toggle"])))
    console.print(table)
    console.print(f"Verilog with counts in {ANNOTATED}", style="dim", soft_wrap=True)
