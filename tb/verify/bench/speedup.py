"""Speed of simulation relative to an older commit: both are built and run alternately in one place.

The metric is the number of simulated cycles of the transfer per second of wall-clock time, for the main job with its
defaults, and for two cards that send to each other at line rate. Other load on the machine slows both down alike.
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

from weft.tb.sim.flow.figures import Row
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.flow.simulate import BUILD_ROOT

BEFORE = "23e2b34cd65cd0c0513d7fab6e79e2e0b0951ff5"    # the last commit with a coroutine for each bus and cycle
SOURCE = Path(__file__).resolve().parents[3]
FOLDERS = ("hdl", "tb", "driver", "model")
PAIRS = 3
LOADS = ("default_job", "line_rate")
# Python program of one run of each load, which prints a number; the modules had other names at that commit.
JOB = ("import json, os; from {run} import run; "
       "status = run(sim='verilator', preset='test', waves=False, view=False, file='', loss=0.01, reorder=0.0, "
       "dup=0.0, corrupt=0.0, rtt_us=20.0, qps=1, seed=1, pmtu=1024); "
       "assert status == 0; "
       "print(json.load(open(os.environ['WEFT_BUILD'] + '/reports/sim.json'))['cycles_per_second'])")
LINE = ("from {line} import Transfer, run_lab; "
        "print(run_lab([Transfer('', 4096, 320 << 10)], progress='progress.jsonl')['']['cycles_per_second'])")
PROGRAMS = {
    when: {"default_job": JOB.format(run=run), "line_rate": LINE.format(line=line)} for when, run, line in (
        ("before", "weft.tb.run_sim", "weft.tb.bench_line_rate"),
        ("now", "weft.tb.app.job.run", "weft.tb.verify.bench.line_rate"))}


def sources_before():
    """Return the folder with package ``weft`` at commit :data:`BEFORE`, or None if git does not have the commit."""
    where = BUILD_ROOT / f"before-{BEFORE[:12]}"
    if not (where / "weft").exists():
        archive = subprocess.run(["git", "-C", SOURCE, "archive", BEFORE, *FOLDERS], capture_output=True)
        if archive.returncode:
            return None
        (where / "weft.part").mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-x", "-C", where / "weft.part"], input=archive.stdout, check=True)
        (where / "weft.part").rename(where / "weft")
    return where


def cycles_per_second(when, load, folder):
    """Run a load once, ``"before"`` or ``"now"``, in a separate folder; return its cycles per second."""
    folder.mkdir(parents=True, exist_ok=True)
    path = [str(folder)] if when == "before" else []
    # The folder comes first on the path: its package hides the installed one.
    environment = {**os.environ, "WEFT_BUILD": str(folder / "sim_build") if when == "before" else str(BUILD_ROOT),
                   "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)}
    done = subprocess.run([sys.executable, "-c", PROGRAMS[when][load]], cwd=folder, env=environment, text=True,
                          capture_output=True)
    if done.returncode:
        raise AssertionError(f"{load} {when}: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def speedups(progress, pairs=PAIRS):
    """Return ``{load: (cycles per second now, ratio)}``, medians over pairs; empty if git does not have the commit."""
    before = sources_before()
    if before is None:
        return {}
    folders, figures = {"before": before, "now": BUILD_ROOT / "now"}, {}
    for load in LOADS:
        found = []
        for number in range(pairs):
            report_progress(progress, f"{load} before and now", number, pairs)
            order = ("before", "now") if number % 2 else ("now", "before")
            speed = {when: cycles_per_second(when, load, folders[when]) for when in order}
            found.append((speed["now"], speed["now"] / speed["before"]))
        figures[load] = tuple(statistics.median(column) for column in zip(*found, strict=True))
    return figures


def rows(progress):
    """Yield the figures as rows; without the commit, print a message instead."""
    figures = speedups(progress)
    if not figures:
        print(f"weft: simulation_speedup is left out: this clone does not have commit {BEFORE[:7]}", file=sys.stderr)
        return
    yield Row("simulation_speedup", "times", min(ratio for _, ratio in figures.values()), at_least=2.0)
    for load, (speed, ratio) in figures.items():
        yield Row(f"simulation_speedup_{load}", "times", ratio)
        yield Row(f"simulation_cycles_per_second_{load}", "1/s", speed)
    yield Row("simulation_cycles_per_second", "1/s", figures["default_job"][0])
