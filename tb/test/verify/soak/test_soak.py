"""A short soak test: two runs of RTL cards, the sums of many runs, and an interrupted soak."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.interrupts import watch_interrupts
from weft.tb.verify.soak import campaign
from weft.tb.verify.soak.bins import AREAS, BINS, NETWORK, OUTAGES
from weft.tb.verify.soak.campaign import ResultCache, Soak, soak
from weft.tb.verify.soak.plan import ALGORITHMS, CARDS, HAZARDS, draw
from weft.tb.verify.soak.run_cases import run

CYCLES, RUNS_MAX = 50_000, 4      # a rare run ends before its frames of unknown peers begin


@pytest.mark.parametrize("hazards", [("PCIe faults", "hostile frames"), ("hot reset", "bus master cleared")],
                         ids=", ".join)
def test_run_succeeds(hazards):
    first = (drawn_seed() >> 3) * 8          # these have the card of preset test
    wanted = {"preset test", "MR churn"} | (set(hazards) if "hot reset" in hazards else
                                            {"honest QPs beside hostile frames"})
    met = set()
    for seed in range(first, first + 8 * RUNS_MAX, 8):
        found = run(seed, CYCLES, hazards)
        assert "failed" not in found, f"seed {seed}\n{found['failed']}"
        assert found["cycles"] >= 0.8 * CYCLES and found["completed"] > 0
        met |= set(found["met"])
        faults = any(name.startswith("PCIe fault") for name in met) and any(area in name for name in met
                                                                            for area in AREAS)
        if met >= wanted and (faults or "PCIe faults" not in hazards):
            break
    else:
        raise AssertionError(f"{sorted(wanted - met)} did not occur in {RUNS_MAX} runs from seed {first} on")
    assert met <= set(BINS)


# Switches before the bottleneck: one of them drops and trims, the other one pauses its neighbours.
BEFORE_BOTTLENECK = (lambda switch: switch.trim and not switch.pfc and switch.buffer_kib == 16,
                     lambda switch: switch.pfc)


def network_plans(seed, kind):
    """Yield plans, from a seed on: their cards react to marks; the switch before their bottleneck is of a kind."""
    for plan in (draw(number, CYCLES, ()) for number in itertools.count(seed)):
        if plan.context.congestion == "dcqcn" and any(kind(switch) for switch in plan.network.switches
                                                      if switch.name == plan.network.watched[0]):
            yield plan


def test_cards_survive_a_network():
    """Runs with marks, until all events of a network have occurred."""
    first, met, runs = drawn_seed(), set(), 4 * RUNS_MAX
    turns = zip(*(network_plans(first, kind) for kind in BEFORE_BOTTLENECK), strict=True)
    for plan in itertools.islice(itertools.chain.from_iterable(turns), runs):
        found = run(plan.seed, CYCLES, ())
        assert "failed" not in found, f"seed {plan.seed}\n{found['failed']}"
        met |= set(found["met"])
        if met >= set(NETWORK):
            break
    else:
        raise AssertionError(f"{sorted(set(NETWORK) - met)} did not occur in {runs} runs from seed {first} on")


def test_seed_determines_a_run_and_many_seeds_cover_everything():
    plans = [draw(seed) for seed in range(1, 57)]
    assert plans[9].env == draw(10).env and plans[9].hazards == draw(10).hazards
    assert {plan.card for plan in plans} == set(CARDS)
    assert {hazard for plan in plans for hazard in plan.hazards} == set(HAZARDS) - {None} > set(OUTAGES)
    assert {plan.rough for plan in plans} == {True, False}
    assert {plan.context.congestion for plan in map(draw, range(1, 100)) if plan.network} == set(ALGORITHMS)
    assert draw(1, hazards=["hot reset"]).hazards == ("hot reset",)


class Runs:
    """Stands in for the simulator."""

    def __init__(self, bad=()):
        self.bad, self.seeds = bad, []

    def __call__(self, seed, cycles):
        self.seeds.append(seed)
        if seed in self.bad:
            return {"seed": seed, "failed": "it broke"}
        return {"seed": seed, "cycles": cycles, "completed": 7, "met": {BINS[seed % len(BINS)]: 1}}


@pytest.fixture
def kept(tmp_path):
    return ResultCache(100, tmp_path)


@pytest.mark.parametrize("jobs", [1, 3])
def test_finished_runs_are_not_run_again(kept, jobs):
    first = Runs()
    total = soak(cycles=1_000, run_cycles=100, run=first, kept=kept, jobs=jobs)
    assert sorted(first.seeds) == list(range(1, 11))
    assert (total.runs, total.cycles, total.completed, total.failures) == (10, 1_000, 70, [])
    second, so_far = Runs(), []
    total = soak(cycles=1_500, run_cycles=100, run=second, kept=kept, jobs=jobs,
                 report_progress=lambda soak: so_far.append(soak.cycles))
    assert sorted(second.seeds) == list(range(11, 16)) and total.cycles == 1_500
    assert so_far == [100 * n for n in range(1, 16)]


def test_changed_sources_start_another_soak(kept, tmp_path, monkeypatch):
    soak(cycles=300, run_cycles=100, run=Runs(), kept=kept)
    monkeypatch.setattr(campaign, "digest", lambda: "other")
    again = Runs()
    soak(cycles=300, run_cycles=100, run=again, kept=ResultCache(100, tmp_path))
    assert again.seeds == [1, 2, 3]


def test_a_failed_run_is_named_and_run_again(kept):
    total = soak(cycles=500, run_cycles=100, run=Runs(bad={3}), kept=kept)
    assert total.cycles == 500 and total.failures == ["it broke\nrepeat it: weft soak --seed 3"]
    again = Runs()
    soak(cycles=500, run_cycles=100, run=again, kept=kept)
    assert again.seeds == [3]


def test_soak_ends_after_its_time(kept):
    runs = Runs()
    total = soak(cycles=10**9, run_cycles=100, run=runs, kept=kept, over=lambda: len(runs.seeds) >= 4)
    assert total.runs == 4 and total.missing == [name for name in BINS if not total.met[name]] != []


def test_many_failures_end_the_soak(kept):
    assert len(soak(cycles=10**9, run_cycles=100, run=Runs(bad=range(100)), kept=kept).failures) == 5


def pretended(seed, cycles):
    """Stand in for the simulator on a worker."""
    return Runs()(seed, cycles)


def test_runs_are_distributed_to_workers(kept):
    """The scheduler at the given address distributes the runs."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        total = soak(cycles=600, run_cycles=100, run=pretended, kept=kept, scheduler=cluster.scheduler_address)
    assert (total.runs, total.cycles, total.failures) == (6, 600, [])
    assert all(kept.get(seed) for seed in range(1, 7))


def test_every_bin_counts():
    total = Soak()
    total.add({"seed": 1, "cycles": 5, "completed": 1, "met": dict.fromkeys(BINS, 1)})
    assert not total.missing and len(set(BINS)) == len(BINS)


WAITING = """
from pathlib import Path
from weft.tb.sim.flow import process
from weft.tb.verify.soak.campaign import ResultCache, soak

def run(seed, cycles):
    process.run(["sh", "-c", "echo $$; exec sleep 120"], cwd=".")

soak(cycles=1, run=run, kept=ResultCache(1, root=Path.cwd()), jobs=2)
"""


def test_an_interrupted_soak_ends_at_once(tmp_path):
    """SIGINT to the parent alone: it does not wait for its simulators, which end, too."""
    with subprocess.Popen([sys.executable, "-c", WAITING], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.PIPE, preexec_fn=watch_interrupts) as process:
        simulator = Path("/proc", process.stdout.readline().strip())
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
        assert (process.wait(), errors) == (130, "weft: stopped\n")
        assert time.monotonic() - began < 2
    while simulator.exists():
        assert time.monotonic() - began < 5, os.listdir(simulator)
        time.sleep(0.05)
