"""Run of the cocotb tests of a file in a simulator that is already built, and check of their results.

Each run has a separate folder below that of the build, with the log, the results, the waves and ``rerun.sh``, which
repeats exactly this run.
"""

import contextlib
import fcntl
import itertools
import os
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from weft.tb.sim.flow import process, simulators
from weft.tb.sim.flow.build import check_space, tail
from weft.tb.sim.flow.tools import surroundings

BENCHES = Path(__file__).resolve().parents[2]
LOCK = "lock"
# By default, pytest rewrites the assertions of every module that a bench imports: half of the start-up time.
START_UP = {"COCOTB_REWRITE_ASSERTION_FILES": "tb/*.py", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
_ASSERTION = re.compile(r"^(ERROR: .*|%Error: .*Assertion failed.*|.*\bassertion failed\b.*)$", re.IGNORECASE)


def bench_seed():
    """Return the seed of this run. A bench takes all its randomness from it: ``random.Random(bench_seed())``."""
    return int(os.environ["WEFT_SEED"])


def module_name(cases):
    """Return the dotted name of the module in file ``cases``; raise ``ValueError`` if it is not below ``weft.tb``."""
    try:
        inside = Path(cases).resolve().relative_to(BENCHES)
    except ValueError:
        raise ValueError(f"{cases} is not below {BENCHES}") from None
    return ".".join(["weft.tb", *inside.with_suffix("").parts])


def run_name(cases):
    """Return the name of the folder of a run: the file of the cases and the running pytest test."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].partition(" ")[0]
    return "run-" + re.sub(r"[^\w.-]+", "_", f"{Path(cases).stem}-{test}").strip("_-")


@contextlib.contextmanager
def run_folder(where, name):
    """Yield an empty folder for a run in build ``where``: ``name``, or ``name-2`` and so on if other runs use those."""
    for number in itertools.count(1):
        folder = where / (name if number == 1 else f"{name}-{number}")
        folder.mkdir(exist_ok=True)
        with open(folder / LOCK, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            for left in folder.iterdir():
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left)
                elif left.name != LOCK:
                    left.unlink()
            yield folder
            return


@dataclass(frozen=True)
class Bench:
    """Cocotb tests and the settings of their run."""

    name: str                                  # of the build folder
    cases: str | Path                          # file with the coroutines ``@cocotb.test()``
    top: str = "top"                           # top module
    sim: str = "icarus"                        # or "verilator"
    seed: int | None = None                    # None: WEFT_SEED of the environment, or a random one
    env: dict = field(default_factory=dict)    # additional environment variables
    waves: bool = False                        # record waves in the run folder; WAVES=1 in the environment does too
    tests: str | None = None                   # regular expression that selects tests
    live: bool = False                         # print the log during the run
    timeout_s: float = 900                     # limit of wall-clock time


def run_tests(where, run, bench):
    """Run a :class:`Bench` in folder ``run`` of build ``where``; raise ``AssertionError`` unless all tests pass."""
    log, results = run / "sim.log", run / "results.xml"
    command, variables = simulators.tool(bench.sim).command(where, top=bench.top, run=run, waves=bench.waves)
    variables |= {
        "COCOTB_TEST_MODULES": module_name(bench.cases), "COCOTB_TOPLEVEL": bench.top, "TOPLEVEL_LANG": "verilog",
        "COCOTB_RESULTS_FILE": str(results), "COCOTB_RANDOM_SEED": str(bench.seed), "COCOTB_ANSI_OUTPUT": "0",
        "WEFT_SEED": str(bench.seed), "WEFT_RUN": str(run), "WEFT_PORTS": str(where / "ports.json"),
        "WEFT_SIM": bench.sim,
        "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1", **START_UP,
        **({"COCOTB_TEST_FILTER": bench.tests} if bench.tests else {}), **bench.env,
    }
    _write_rerun(run / "rerun.sh", command, variables)
    with open(log, "wb") as out:
        status = process.run(command, cwd=run, environment={**surroundings(), **variables},
                             out=None if bench.live else out, timeout_s=bench.timeout_s)
    problems = _problems(log, results, status, bench.timeout_s)
    if problems:
        check_space(run)
        raise AssertionError("\n".join([
            f"{bench.name} under {bench.sim}: {'; '.join(problems)}", f"--- end of {log}", tail(log), "---",
            f"seed {bench.seed}; run it again: {_again(bench.seed, run)}"]))


def _problems(log, results, status, timeout_s):
    """Return the reasons why the run failed, as sentences; empty if it passed."""
    problems = []
    if status is None:
        problems.append(f"still running after {timeout_s} s of wall clock")
    elif status != 0:
        problems.append(f"the simulator ended with status {status}")
    asserted = [line for line in log.read_text(errors="replace").splitlines() if _ASSERTION.match(line)]
    if asserted:
        problems.append(f"{len(asserted)} failed assertion(s) in the HDL, the first: {asserted[0].strip()}")
    if not results.exists():
        return [*problems, "it left no results"]
    cases = ElementTree.parse(results).getroot().findall(".//testcase")
    ran = [case for case in cases if case.find("skipped") is None]
    failed = [case.get("name") for case in ran if case.find("failure") is not None or case.find("error") is not None]
    if not ran:
        problems.append("no test was run")
    if failed:
        problems.append(f"{len(failed)} of {len(ran)} tests failed: {', '.join(failed)}")
    return problems


def _again(seed, run):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test:
        return f"WEFT_SEED={seed} python -m pytest {shlex.quote(test)}"
    return f"sh {shlex.quote(str(run / 'rerun.sh'))}"


def _write_rerun(path, command, variables):
    assignments = "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in sorted(variables.items()))
    path.write_text(f"#!/bin/sh\n# Repeats this simulation run.\ncd {shlex.quote(str(path.parent))}\n"
                    f"unset COCOTB_TESTCASE COCOTB_TEST_FILTER\n{assignments}"
                    f"exec {shlex.join(map(str, command))}\n", encoding="utf-8", errors="surrogateescape")
