"""Tests of two cards at line rate, in cycles of simulated time."""

import pytest

from weft.tb.test.verify.bench.command import bench
from weft.tb.verify.bench import line_rate
from weft.tb.verify.bench.line_rate import TRANSFERS, Transfer, limit_gbps, rate_rows, run_lab

SHORT = ("",)
OTHERS = ("_256", "_1024", "_1024_unaligned", "_1024_4qps", "_1024_1pct_lost", "_split64_straddle",
          "_1024_two_clocks")
# Where a host draws its pages, and how long its reads take, changes the rate by 1 %: seeds 1 to 4 give 0.174 to 0.177.
SMALL_WRITES = Transfer("_small_writes", 1024, 384 << 10, message_bytes=1024, bar=0.173)


def check(names, monkeypatch, folder):
    """Measure the transfers ``names`` in one run, and compare their rates with their limits."""
    chosen = [job for job in TRANSFERS if job.name in names]
    assert len(chosen) == len(names)
    monkeypatch.setattr(line_rate, "TRANSFERS", chosen)
    monkeypatch.setattr(line_rate.rate_rows, "__defaults__", (chosen,))
    found = {row["name"]: row["value"] for row in bench(monkeypatch, folder, "--only", "line-rate")}
    for job in chosen:
        assert job.senders == "ab" and job.bar
        for direction in ("tx", "rx"):
            rate = found[f"{direction}_payload_gbps{job.name}"] / job.limit_gbps
            assert job.bar <= rate < 1.01, "faster than the wire: the measurement is wrong"


def test_limits_are_those_of_ethernet():
    assert limit_gbps(4096) == pytest.approx(97.66, abs=0.005)
    assert limit_gbps(1024) == pytest.approx(100 * 1024 / (8 + 14 + 20 + 8 + 12 + 16 + 1024 + 4 + 4 + 12))


def test_both_directions_at_once_run_at_line_rate(monkeypatch, tmp_path):
    check(SHORT, monkeypatch, tmp_path)


@pytest.mark.slow
def test_other_settings_run_at_line_rate(monkeypatch, tmp_path):
    """One test, because each worker that ran one of several would simulate all settings."""
    check(OTHERS, monkeypatch, tmp_path)


def test_acknowledgements_between_small_writes_block_nothing(tmp_path):
    """Raw frames for the driver and payload share the path to host memory, with separate requests and data.

    The 16 outstanding messages limit the rate, so it depends on earlier transfers: the run is separate.
    """
    figures = run_lab([SMALL_WRITES], progress=tmp_path / "progress")
    bars = [row for row in rate_rows(figures, [SMALL_WRITES]) if row.at_least]
    assert len(bars) == 2 and not [row for row in bars if row.missed]
