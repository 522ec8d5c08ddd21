"""Tests of soaking: new seeds, the time limit, and the command that repeats a failure."""

import itertools
import os
import random
import subprocess
import sys

import pytest

from weft.tb.verify.soak import runs as soak


@pytest.fixture
def runs(monkeypatch):
    """Replace runs by fakes that take a tenth of the time of a fake clock; the fourth fails if requested."""
    state = {"now": 0.0, "drawn": [], "bad": None}

    def drawn(rng):
        state["now"] += 10
        state["drawn"].append(seed := rng.randrange(1 << 31))
        bad = len(state["drawn"]) == state["bad"]
        return {"WEFT_SEED": str(seed)}, [sys.executable, "-c", f"raise SystemExit({bad:d})"]

    for kind in ("job", "recovery", "soft", "operations", "cards"):
        monkeypatch.setattr(soak, kind, drawn)
    monkeypatch.setattr(soak, "bad_links", lambda: (drawn(random.Random("bad link")) for _ in range(1)))
    monkeypatch.setattr(soak.time, "monotonic", lambda: state["now"])
    return state


def test_runs_start_until_the_time_is_over(runs, capsys):
    assert soak.run(55, random.Random(1)) == 0
    assert len(set(runs["drawn"])) == 6
    assert "6 runs in 60 s, none failed" in capsys.readouterr().out


def test_failed_run_ends_the_soak_and_is_named(runs, capsys):
    runs["bad"] = 4
    assert soak.run(1000, random.Random(1)) == 1
    printed = capsys.readouterr()
    assert len(runs["drawn"]) == 4 and printed.out.count("WEFT_SEED=") == 4
    assert f"WEFT_SEED={runs['drawn'][-1]} " in printed.err


@pytest.mark.parametrize(("options", "called"), [
    (["--seed", "5"], ("repeat", (5,), {})),
    (["--cards", "--budget", "9", "--first", "3", "--jobs", "2"],
     ("report", (9.0,), {"first_seed": 3, "jobs": 2, "scheduler": None})),
    (["--scheduler", "tcp://there:8786"],
     ("report", (600.0,), {"first_seed": 1, "jobs": 1, "scheduler": "tcp://there:8786"})),
])
def test_two_cards_are_soaked_by_option(options, called, monkeypatch):
    from typer.testing import CliRunner

    from weft.tb.cli import app
    from weft.tb.verify.soak import report

    seen = []
    for name in ("repeat", "report"):
        monkeypatch.setattr(report, name, lambda *args, name=name, **options: seen.append((name, args, options)) or 0)
    assert CliRunner().invoke(app, ["soak", *options]).exit_code == 0
    assert seen == [called]


def test_drawn_jobs_are_valid():
    """Every option is one that ``weft sim`` takes, and within its limits."""
    from typer.testing import CliRunner

    from weft.tb.app.job import run
    from weft.tb.cli import app

    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "run", lambda settings, **_: seen.append(settings) or 0)
        for seed in range(20):
            _, command = soak.job(random.Random(seed))
            done = CliRunner().invoke(app, command[len(soak.SIM) - 1:])
            assert done.exit_code == 0, done.output
    assert len({settings.seed for settings in seen}) == 20 and {settings.qps for settings in seen} > {1, 12}


def test_seeds_outside_the_tests_come_first():
    """Together with the seeds that the tests run: the seeds 1 to 20."""
    def tests(variables, command):
        listed = subprocess.run([*command, "--collect-only"], env={**os.environ, **variables}, capture_output=True,
                                text=True)
        return [line.rpartition("[")[2].rstrip("]") for line in listed.stdout.splitlines() if "::" in line]
    drawn = soak.turns(random.Random(1))
    left_out = [tests(*next(drawn)) for _ in soak.BAD_LINK_SEEDS]
    run = tests({"WEFT_SEED": ""}, soak.BAD_LINK)
    assert sorted(map(int, sum(left_out, run))) == list(range(1, 21))
    assert next(drawn)[1][:len(soak.SIM)] == soak.SIM


def test_software_rdma_is_soaked():
    """Each test of a bad link has separate seeds, and the requested number of frames."""
    variables, command = soak.soft(random.Random(1))
    listed = subprocess.run([*command, "--collect-only"], env={**os.environ, **variables}, capture_output=True,
                            text=True)
    for seed in variables["WEFT_SEED"].split(","):
        assert listed.stdout.count(f"bad_link_preserves_bytes_order_and_number[{seed}]") == 2, listed.stdout
    assert listed.stdout.count("test_random_and_mutated_frames_raise_nothing") == 2
    kinds = [drawn[1] for drawn in itertools.islice(soak.turns(random.Random(1)), 3, 8)]
    assert kinds[2:4] == [soak.SOFT, soak.OPERATIONS] and kinds[4][:-1] == soak.CARDS
