"""Two cards at line rate, in cycles of simulated time."""

from dataclasses import replace

import pytest

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
