"""Campaign of many runs: results are cached, and missing runs are started here or on the workers of a Dask scheduler.

The cache key of a result covers the files of the card, its driver and the bench. Therefore an interrupted soak
continues, and a soak after a change begins again.
"""

import contextlib
import itertools
import json
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from weft.tb.sim.flow.build import BUILD_ROOT
from weft.tb.sim.flow.failure import stop
from weft.tb.sim.flow.sources import sources
from weft.tb.sim.flow.tools import write_whole
from weft.tb.verify.soak.bins import BINS
from weft.tb.verify.soak.plan import CYCLES
from weft.tb.verify.soak.run_cases import run as run_one

FAILURES_MAX = 5       # after this number, no further run is started
DEPENDS_ON = ("hdl", "driver", "model", "tb/verify/soak", "tb/sim")


def digest():
    """Return the digest of all files that a run depends on."""
    return sources(*DEPENDS_ON, without=("test_",))[:16]


@dataclass
class Soak:
    """Sum of the results of many runs."""

    runs: int = 0
    cycles: int = 0
    completed: int = 0                                  # requests with correct data
    met: Counter = field(default_factory=Counter)       # counts of `BINS`
    failures: list = field(default_factory=list)        # each with its seed, and the command that repeats it

    def add(self, found):
        self.runs += 1
        if "failed" in found:
            self.failures.append(f"{found['failed']}\nrepeat it: {again(found['seed'])}")
            return
        self.cycles += found["cycles"]
        self.completed += found["completed"]
        self.met.update(found["met"])

    @property
    def missing(self):
        """Return the empty bins."""
        return [name for name in BINS if not self.met[name]]


def again(seed):
    """Return the command that repeats the run of a seed."""
    return f"weft soak --seed {seed}"


class ResultCache:
    """Cached results by seed, in a separate folder for each state of the sources."""

    def __init__(self, cycles, root=BUILD_ROOT / "soak"):
        self.folder, self.cycles = root / f"{digest()}-{cycles}", cycles

    def _path(self, seed):
        return self.folder / f"{seed}.json"

    def get(self, seed):
        """Return the cached result of a run, or None."""
        path = self._path(seed)
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, found):
        """Cache a result; a failed one is not cached, so that it is run again."""
        if "failed" not in found:
            write_whole(self._path(found["seed"]), json.dumps(found))


@contextlib.contextmanager
def crew(scheduler=None, jobs=1):
    """Yield an executor and the number of runs to keep outstanding; wait for all of them at the end.

    ``scheduler`` is the address of a Dask scheduler whose workers see this checkout (ImportError without Dask); without
    it, the executor has ``jobs`` threads, each of which waits for a simulator. SIGINT ends the process at once, with a
    sentence: a run may take minutes.
    """
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            executor = stack.enter_context(ThreadPoolExecutor(jobs))
        else:
            from distributed import Client
            client = stack.enter_context(Client(scheduler))
            executor, jobs = client.get_executor(pure=False), max(1, sum(client.nthreads().values()))
            stack.enter_context(executor)
        try:
            yield executor, jobs
        except KeyboardInterrupt:
            stop()


def soak(*, cycles, first_seed=1, run_cycles=CYCLES, over=lambda: False, report_progress=lambda so_far: None,
         run=run_one, kept=None, **workers):
    """Run seed after seed until ``cycles`` cycles have been simulated or ``over()`` holds; return the :class:`Soak`.

    ``workers`` are the arguments of :func:`crew`.
    """
    kept, total = kept or ResultCache(run_cycles), Soak()
    seeds, outstanding = itertools.count(first_seed), set()
    with crew(**workers) as (executor, most):
        while outstanding or total.cycles < cycles and not over():
            while len(outstanding) < most and total.cycles + run_cycles * len(outstanding) < cycles and not over():
                seed = next(seeds)
                if (found := kept.get(seed)) is None:
                    outstanding.add(executor.submit(run, seed, run_cycles))
                else:
                    total.add(found)
                    report_progress(total)
            if not outstanding:
                continue
            done, outstanding = wait(outstanding, return_when=FIRST_COMPLETED)
            for found in (future.result() for future in done):
                kept.put(found)
                total.add(found)
                report_progress(total)
            if len(total.failures) >= FAILURES_MAX:
                break
    return total
