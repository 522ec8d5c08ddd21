"""``weft soak``: runs with random seeds for a given time.

The first runs are the seeds of the main job on an impaired link that ``make test`` leaves out. Then five kinds of run
alternate: the main job in RTL on a link with random impairments; the recovery tests between functional cards; the tests
of software RDMA on impaired links and with invalid input; random operations between functional cards; and two cards
under all hazards (:mod:`weft.tb.verify.soak`). The command that repeats a run is printed before the run. The first
failure ends the soak.
"""

import itertools
import os
import random
import shlex
import subprocess
import sys
import time
from pathlib import Path

from weft.model.settings import PMTUS, words
from weft.tb.app.job.job_settings import JobSettings

SIM = [sys.executable, "-m", "weft.tb.cli", "sim"]
CARDS = [sys.executable, "-m", "weft.tb.cli", "soak", "--seed"]
TESTS = Path(__file__).resolve().parents[2] / "test"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-n", "0"]
RECOVERY = [*PYTEST, *(str(TESTS / "driver" / name) for name in ("send/test_recovery.py", "knitting/test_pool.py"))]
SOFT = [*PYTEST, *(str(TESTS / "driver/soft" / f"test_{protocol}_{part}.py")
                   for protocol in ("raw", "rc") for part in ("transfer", "hostile"))]
SOFT_FRAMES, OPERATIONS_COUNT = 50_000, 5_000
OPERATIONS = [*PYTEST, str(TESTS / "driver/operation/test_operations.py")]
BAD_LINK = [*PYTEST, f"{TESTS / 'app/job/test_main_job.py'}::test_bad_link_in_both_directions"]
# The seeds that the tests leave out, grouped by the number of seeds per test run.
BAD_LINK_SEEDS = [range(first, first + 5) for first in (6, 11, 16)]
CHANCES = {"loss": (0.001, 0.1), "reorder": (0.0, 0.05), "dup": (0.0, 0.05), "corrupt": (0.0, 0.02)}


def job(rng):
    """Return environment and command of a main job with random settings."""
    drawn = {"seed": rng.randrange(1 << 31), "qps": rng.choice([1, 2, 3, 8, 12]), "pmtu": rng.choice(PMTUS),
             "rtt_us": rng.choice([2, 5, 20, 50])}
    for name, (low, high) in CHANCES.items():
        for direction in ("", "back_"):
            drawn[direction + name] = round(rng.uniform(low, high), 4) if rng.random() < 0.7 else 0
    return {}, [*SIM, *words(JobSettings(**drawn))]


def recovery(rng):
    """Return environment and command of the functional tests, with random seeds."""
    return {"WEFT_SEED": ",".join(str(rng.randrange(1 << 31)) for _ in range(8))}, RECOVERY


def soft(rng):
    """Return environment and command of the software RDMA tests, with random seeds and more frames of invalid input."""
    return {**recovery(rng)[0], "WEFT_FRAMES": str(SOFT_FRAMES)}, SOFT


def operations(rng):
    """Return environment and command of the tests of random operations, with a random seed and more operations."""
    return {**recovery(rng)[0], "WEFT_OPERATIONS": str(OPERATIONS_COUNT)}, OPERATIONS


def cards(rng):
    """Return environment and command of a run of two cards."""
    return {}, [*CARDS, str(rng.randrange(1 << 31))]


def bad_links():
    """Yield environments and commands for the main job's seeds that the tests leave out."""
    for seeds in BAD_LINK_SEEDS:
        yield {"WEFT_SEED": ",".join(map(str, seeds))}, BAD_LINK


def turns(rng):
    """Yield environments and commands of all runs, without end."""
    yield from bad_links()
    for kind in itertools.cycle((job, recovery, soft, operations, cards)):
        yield kind(rng)


def run(budget_s, rng=None):
    """Start runs until ``budget_s`` seconds are over; return the exit status: 1 after the first failure."""
    rng = rng or random.SystemRandom()
    began, done = time.monotonic(), 0
    drawn = turns(rng)
    while time.monotonic() - began < budget_s:
        variables, command = next(drawn)
        again = " ".join([*(f"{name}={value}" for name, value in variables.items()), shlex.join(command)])
        print(again, flush=True)
        finished = subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
        if finished.returncode:
            print(f"{finished.stdout[-4000:]}\nweft: this run failed; repeat it by\n{again}", file=sys.stderr)
            return 1
        done += 1
    print(f"{done} runs in {time.monotonic() - began:.0f} s, none failed")
    return 0
