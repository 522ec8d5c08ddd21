"""Two cards at line rate, in cycles of simulated time; and the runner of the benchmarks."""

import json
from dataclasses import replace

import pytest

from weft.tb.measure import run as run_bench
from weft.tb.measure.benchmark import Benchmark, Row
from weft.tb.measure.line_rate import TRANSFERS, Transfer, limit_gbps, rate_rows, run_lab

SHORT = {"": 320 << 10, "_1024": 160 << 10, "_1024_unaligned": 160 << 10}
SMALL_WRITES = Transfer("_small_writes", 1024, 96 << 10, message_bytes=1024)


def test_limits_are_those_of_ethernet():
    assert limit_gbps(4096) == pytest.approx(97.66, abs=0.005)
    assert limit_gbps(1024) == pytest.approx(100 * 1024 / (8 + 14 + 20 + 8 + 12 + 16 + 1024 + 4 + 4 + 12))


def test_both_directions_at_once_run_at_line_rate(tmp_path):
    transfers = [replace(job, payload=SHORT[job.name]) for job in TRANSFERS if job.name in SHORT]
    assert len(transfers) == len(SHORT) and all(job.senders == "ab" and job.bar for job in transfers)
    rows = {row.name: row for row in rate_rows(run_lab(transfers, progress=tmp_path / "progress"), transfers)}
    assert not [row for row in rows.values() if row.missed]
    for job in transfers:
        for way in ("tx", "rx"):
            row = rows[f"{way}_payload_gbps{job.name}"]
            assert row.at_least == pytest.approx(job.bar * job.limit_gbps)
            assert row.value < 1.01 * job.limit_gbps, "faster than the wire: the measurement is wrong"


def test_acknowledgements_between_small_writes_block_nothing(tmp_path):
    """Raw frames for the driver and payload share the way to host memory, request and data apart."""
    figures = run_lab([SMALL_WRITES], progress=tmp_path / "progress")
    assert figures[SMALL_WRITES.name]["rx"] > 0


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """A registry and a report of its own."""
    rows = {"one": [Row("speed", "m/s", 3.0, at_least=2.0)], "two": [Row("depth", "m", 1.0)]}

    class Fake(Benchmark):
        def measure(self, progress):
            progress.write_text('{"phase": "x", "done": 1, "total": 2}\n')
            return rows[self.module]

    monkeypatch.setattr(run_bench, "BENCHMARKS", {name: Fake("About it.", name) for name in rows})
    monkeypatch.setattr(run_bench, "REPORT", tmp_path / "bench.json")
    monkeypatch.setattr(run_bench, "PROGRESS", tmp_path / "progress")
    return rows


def test_report_keeps_what_was_not_measured(fakes):
    assert run_bench.run() == 0
    fakes["one"] = [Row("speed", "m/s", 4.0, at_least=2.0)]
    assert run_bench.run(["one"]) == 0
    assert json.loads(run_bench.REPORT.read_text()) == [
        {"name": "speed", "unit": "m/s", "value": 4.0, "command": "weft bench --only one"},
        {"name": "depth", "unit": "m", "value": 1.0, "command": "weft bench --only two"}]


def test_missed_bar_fails(fakes, capsys):
    fakes["one"] = [Row("speed", "m/s", 1.0, at_least=2.0)]
    assert run_bench.run() == 1
    assert "speed is 1 m/s" in capsys.readouterr().err
    assert len(json.loads(run_bench.REPORT.read_text())) == 2


def test_failed_benchmark_fails(fakes, monkeypatch, capsys):
    def broken(self, progress):
        raise AssertionError("no simulator")

    monkeypatch.setattr(type(run_bench.BENCHMARKS["one"]), "measure", broken)
    assert run_bench.run(["two"]) == 1
    assert "two failed: no simulator" in capsys.readouterr().err
