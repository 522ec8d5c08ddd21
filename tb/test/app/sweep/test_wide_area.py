"""Tests of the benchmarks of wide-area experiments, at sizes that take no time."""

import pytest

from weft.model.wan import result
from weft.tb.test.model.ready import compile_once
from weft.tb.verify.bench import wide_area, wide_area_long


@pytest.fixture(autouse=True)
def _compiled():
    compile_once(result)


@pytest.mark.parametrize("outage_ms", [0.3, 2.0])
def test_recovery_takes_a_round_trip_plus_the_lost_time(outage_ms, monkeypatch):
    monkeypatch.setattr(wide_area, "STEP_US", 2.0)
    x = wide_area.LARGE.with_(rtt_ms=1, outage_ms=outage_ms)
    assert 0.99 < wide_area.recovery_ms(x) / (x.rtt_ms + outage_ms) < 1.05


def test_transfers_take_longer_with_more_loss_and_after_an_outage():
    x = wide_area_long.TRANSFER.with_(rtt_ms=1, transfer_mib=4)
    none, few, many = (wide_area_long.times(x.with_(loss=loss, marker=True), 8) for loss in (0.0, 1e-3, 5e-2))
    assert none[0] == none[-1] and sum(none) < sum(few) < sum(many)
    silent = wide_area_long.times(x.with_(loss=5e-2, marker=False), 8)
    assert sum(silent) > sum(many)
