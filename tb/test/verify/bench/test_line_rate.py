"""Two cards at line rate, in cycles of simulated time."""

import pytest

from weft.tb.verify.bench.line_rate import TRANSFERS, Transfer, limit_gbps, rate_rows, run_lab

TESTED = ("", "_256", "_1024", "_1024_unaligned", "_1024_4qps", "_1024_1pct_lost", "_split64_straddle",
          "_1024_two_clocks")
SMALL_WRITES = Transfer("_small_writes", 1024, 384 << 10, message_bytes=1024, bar=0.176)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows of all measurements by name, from one run."""
    transfers = [job for job in TRANSFERS if job.name in TESTED]
    assert len(transfers) == len(TESTED)
    figures = run_lab(transfers, progress=tmp_path_factory.mktemp("line_rate") / "progress")
    return {row.name: row for row in rate_rows(figures, transfers)}


def test_limits_are_those_of_ethernet():
    assert limit_gbps(4096) == pytest.approx(97.66, abs=0.005)
    assert limit_gbps(1024) == pytest.approx(100 * 1024 / (8 + 14 + 20 + 8 + 12 + 16 + 1024 + 4 + 4 + 12))


@pytest.mark.parametrize("name", TESTED)
def test_both_directions_at_once_run_at_line_rate(rows, name):
    job, = (job for job in TRANSFERS if job.name == name)
    assert job.senders == "ab" and job.bar
    for way in ("tx", "rx"):
        row = rows[f"{way}_payload_gbps{name}"]
        assert row.at_least == pytest.approx(job.bar * job.limit_gbps) and not row.missed, row
        assert row.value < 1.01 * job.limit_gbps, "faster than the wire: the measurement is wrong"


def test_acknowledgements_between_small_writes_block_nothing(tmp_path):
    """Raw frames for the driver and payload share the way to host memory, request and data apart.

    16 messages in flight are what limits the rate, so it depends on what went before: the run is one of its own.
    """
    figures = run_lab([SMALL_WRITES], progress=tmp_path / "progress")
    bars = [row for row in rate_rows(figures, [SMALL_WRITES]) if row.at_least]
    assert len(bars) == 2 and not [row for row in bars if row.missed]
