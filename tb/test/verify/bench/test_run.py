"""Tests of ``weft bench``: output, stored results and error messages."""

import json

import pytest

from weft.tb.sim.flow import figures
from weft.tb.sim.flow.figures import Row
from weft.tb.verify.bench import run as run_bench
from weft.tb.verify.bench.benchmark import BENCHMARKS, Benchmark


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """Create a separate registry and report."""
    rows = {"one": [Row("speed", "m/s", 3.0, at_least=2.0)], "two": [Row("depth", "m", 1.0, conditions="at night")]}

    class Fake(Benchmark):
        def _rows(self, progress):
            progress.write_text('{"phase": "x", "done": 1, "total": 2}\n')
            return rows[self.module]

    monkeypatch.setattr(run_bench, "BENCHMARKS", {name: Fake("About it.", name, conditions="at noon") for name in rows})
    monkeypatch.setattr(figures, "REPORT", tmp_path / "bench.json")
    monkeypatch.setattr(run_bench, "PROGRESS", tmp_path / "progress")
    return rows


def test_report_keeps_unmeasured_figures(fakes):
    assert run_bench.run() == 0
    fakes["one"] = [Row("speed", "m/s", 4.0, at_least=2.0)]
    assert run_bench.run(["one"]) == 0
    assert json.loads(figures.REPORT.read_text()) == [
        {"name": "speed", "unit": "m/s", "value": 4.0, "command": "weft bench --only one", "conditions": "at noon"},
        {"name": "depth", "unit": "m", "value": 1.0, "command": "weft bench --only two", "conditions": "at night"}]


def test_report_drops_figures_that_a_benchmark_no_longer_measures(fakes):
    assert run_bench.run() == 0
    fakes["one"] = [Row("pace", "s/m", 0.3)]
    assert run_bench.run(["one"]) == 0
    assert {row["name"] for row in figures.load_report()} == {"depth", "pace"}
    assert figures.judged("one", [Row("speed", "m/s", 3.0)], "weft bench --only one") == 0
    assert {row["name"] for row in figures.load_report()} == {"depth", "pace", "speed"}


def test_missed_bar_fails(fakes, capsys):
    fakes["one"] = [Row("speed", "m/s", 1.0, at_least=2.0)]
    assert run_bench.run() == 1
    assert "speed is 1 m/s" in capsys.readouterr().err
    assert len(json.loads(figures.REPORT.read_text())) == 2


def test_failed_benchmark_fails(fakes, monkeypatch, capsys):
    def broken(self, progress):
        raise AssertionError("no simulator")

    monkeypatch.setattr(type(run_bench.BENCHMARKS["one"]), "_rows", broken)
    assert run_bench.run(["two"]) == 1
    assert "two failed: no simulator" in capsys.readouterr().err


def test_conditions_are_printed_above_the_figures(fakes, capsys):
    assert run_bench.run() == 0
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    noon, night = printed.index("at noon"), printed.index("at night")
    where = {name: next(k for k, line in enumerate(printed) if line.startswith(name)) for name in ("speed", "depth")}
    assert noon < where["speed"] < night < where["depth"]


def test_every_benchmark_names_its_conditions():
    assert not [name for name, benchmark in BENCHMARKS.items() if not benchmark.conditions]
