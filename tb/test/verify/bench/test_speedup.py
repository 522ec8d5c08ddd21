"""Tests of the comparison of simulation speed with an older commit, also when the commit is missing."""

import pytest

from weft.tb.verify.bench import speedup

SPEED = {("now", "default_job"): [900, 1000, 800], ("before", "default_job"): [300, 400, 400],
         ("now", "line_rate"): [500, 500, 500], ("before", "line_rate"): [100, 125, 250]}


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Return the list of executed loads, in order, each of which takes no time."""
    done = []

    def run(when, load, folder):
        done.append((when, load))
        return SPEED[when, load][done.count((when, load)) - 1]

    monkeypatch.setattr(speedup, "cycles_per_second", run)
    monkeypatch.setattr(speedup, "sources_before", lambda: tmp_path)
    return done


def test_median_of_the_pairs_of_the_slower_load(runs, tmp_path):
    figures = {row.name: row.value for row in speedup.rows(tmp_path / "progress")}
    assert figures == {
        "simulation_speedup": 2.5, "simulation_speedup_default_job": 2.5, "simulation_speedup_line_rate": 4,
        "simulation_cycles_per_second_default_job": 900, "simulation_cycles_per_second_line_rate": 500,
        "simulation_cycles_per_second": 900}
    first = [when for when, _ in runs[::2]]
    assert len(runs) == 12 and {"before", "now"} == set(first), "one of a pair is always the first"


def test_missing_commit_is_reported(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(speedup, "BUILD_ROOT", tmp_path)
    monkeypatch.setattr(speedup, "BEFORE", "0" * 40)
    assert list(speedup.rows(tmp_path / "progress")) == []
    assert "does not have commit 0000000" in capsys.readouterr().err
