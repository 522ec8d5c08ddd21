"""Tests of two cards at line rate, in cycles of simulated time."""

import pytest

from weft.tb.verify.bench.line_rate import TRANSFERS, Transfer, limit_gbps, rate_rows, run_lab

SHORT = ("",)
OTHERS = ("_256", "_1024", "_1024_unaligned", "_1024_4qps", "_1024_1pct_lost", "_split64_straddle",
          "_1024_two_clocks")
# Where a host draws its pages, and how long its reads take, changes the rate by 1 %: seeds 1 to 4 give 0.174 to 0.177.
SMALL_WRITES = Transfer("_small_writes", 1024, 384 << 10, message_bytes=1024, bar=0.173)


def measured(names, folder):
    """Return rows of the transfers ``names`` by name, from one run."""
    transfers = [job for job in TRANSFERS if job.name in names]
    assert len(transfers) == len(names)
    return {row.name: row for row in rate_rows(run_lab(transfers, progress=folder / "progress"), transfers)}


def test_limits_are_those_of_ethernet():
    assert limit_gbps(4096) == pytest.approx(97.66, abs=0.005)
    assert limit_gbps(1024) == pytest.approx(100 * 1024 / (8 + 14 + 20 + 8 + 12 + 16 + 1024 + 4 + 4 + 12))


def test_both_directions_at_once_run_at_line_rate(tmp_path):
    check(measured(SHORT, tmp_path), SHORT[0])


@pytest.mark.slow
def test_other_settings_run_at_line_rate(tmp_path):
    """One test, because each worker that ran one of several would simulate all settings."""
    rows = measured(OTHERS, tmp_path)
    for name in OTHERS:
        check(rows, name)


def check(rows, name):
    job, = (job for job in TRANSFERS if job.name == name)
    assert job.senders == "ab" and job.bar
    for direction in ("tx", "rx"):
        row = rows[f"{direction}_payload_gbps{name}"]
        assert row.at_least == pytest.approx(job.bar * job.limit_gbps) and not row.missed, row
        assert row.value < 1.01 * job.limit_gbps, "faster than the wire: the measurement is wrong"


def test_acknowledgements_between_small_writes_block_nothing(tmp_path):
    """Raw frames for the driver and payload share the path to host memory, with separate requests and data.

    The 16 outstanding messages limit the rate, so it depends on earlier transfers: the run is separate.
    """
    figures = run_lab([SMALL_WRITES], progress=tmp_path / "progress")
    bars = [row for row in rate_rows(figures, [SMALL_WRITES]) if row.at_least]
    assert len(bars) == 2 and not [row for row in bars if row.missed]
