"""Repeat recorded simulations with other Verilog: ``python -m weft.tb.verify.mutate.replay job.json``.

Each mutant runs in a separate process, with a separate build folder (``WEFT_BUILD``) and a limit on the processor time
of each simulation, so that machine load does not stop a simulation too early.
"""

import json
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from weft.tb.sim.flow.simulate import simulate
from weft.tb.verify.mutate.sources import file_of

WALL_FACTOR, WALL_S = 20, 120    # limit of wall-clock time, on a machine with other load
FIRST_FAILURE = {"COCOTB_MAX_FAILURES": "1"}    # the first failure decides


@dataclass(frozen=True)
class Run:
    """Outcome of a simulation."""

    test: str
    seconds: float      # processor time including the build
    problem: str        # first line of the test's message; empty if it passed


def replay(verilog, simulations, seed, limits):
    """Run ``simulations`` with a Verilog text, in order, up to the first failure; yield a :class:`Run` for each.

    ``limits`` has seconds of processor time by test.
    """
    for simulation in simulations:
        limit = limits[simulation["test"]]
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (round(_used(resource.RUSAGE_SELF) + limit), hard))
        start, problem = _used(resource.RUSAGE_CHILDREN), ""
        try:
            simulate(verilog=verilog, top=simulation["top"], name="mutant", sim=simulation["sim"], seed=seed,
                     cases=file_of(simulation["module"]), tests=simulation["tests"],
                     env={**dict(simulation["env"]), **FIRST_FAILURE}, timeout_s=WALL_FACTOR * limit + WALL_S)
        except AssertionError as error:
            problem = str(error).partition("\n")[0] or "failed"
        yield Run(simulation["test"], round(_used(resource.RUSAGE_CHILDREN) - start, 1), problem)
        if problem:
            return


def _used(owner):
    usage = resource.getrusage(owner)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    job = Path(sys.argv[1])
    wanted = json.loads(job.read_text())
    runs = list(replay(Path(wanted["verilog"]).read_text(), wanted["simulations"], wanted["seed"], wanted["limits"]))
    job.with_suffix(".out").write_text(json.dumps([vars(run) for run in runs]))
