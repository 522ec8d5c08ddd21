"""Invariants of every algorithm, whatever the network reports."""

import dataclasses
import random

import pytest

from weft.driver.congestion.algorithm import BDPS_MAX, NS_BITS
from weft.driver.congestion.algorithms import ALGORITHMS, create
from weft.driver.terms.settings import BadSetting, fields
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.driver.congestion.events import DELAY_NS, LINE, PACKET, random_events

LEAST = {"none": LINE, "dcqcn": 10e6, "swift": 1.0, "rate-match": 1e6}


@pytest.fixture
def rng():
    return random.Random(drawn_seed())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_rate_and_limit_stay_in_their_range(name, rng):
    flow, shortest, rates = create(name, LINE, DELAY_NS), DELAY_NS, set()
    for event, now, arguments in random_events(rng, 5000):
        if event == "on_delay":
            shortest = min(shortest, *arguments)
        getattr(flow, event)(now, *arguments)
        assert LEAST[name] <= flow.rate <= LINE
        if name != "none":
            known = max(shortest, flow.delay_ns)    # rate-match measures the path again from time to time
            assert 0 < flow.limit <= max(PACKET, BDPS_MAX * LINE * known / NS_BITS)
        rates.add(flow.rate)
    assert (len(rates) > 20) == (name != "none")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_congestion_never_raises_and_progress_never_lowers(name, rng):
    flow, cuts = create(name, LINE, DELAY_NS), 0
    for event, now, arguments in random_events(rng, 5000):
        rate, limit = flow.rate, flow.limit
        getattr(flow, event)(now, *arguments)
        if event in ("on_cnp", "on_loss"):
            assert flow.rate <= rate and flow.limit <= limit
            cuts += flow.rate < rate or flow.limit < limit
        elif event == "on_ack" and name == "dcqcn":
            assert flow.rate >= rate
    assert (cuts > 0) == (name in ("dcqcn", "swift"))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_time_and_amounts_without_bound_do_no_harm(name):
    flow = create(name, LINE, DELAY_NS)
    flow.on_cnp(1.0)
    for now in (1e18, 2e18):
        flow.on_delay(now, 1e15)
        flow.on_loss(now, 1 << 60)
        flow.on_ack(now, 1 << 60, 1 << 60)
        assert 0 < flow.rate <= LINE and flow.limit > 0


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "none"])
def test_settings_have_ranges_units_and_help(name):
    kind = ALGORITHMS[name][1]
    assert set(fields(kind)) == {field.name for field in dataclasses.fields(kind)}
    for field in fields(kind).values():
        assert field.setting.help and field.ranged
        with pytest.raises(BadSetting, match=field.name):
            create(name, LINE, DELAY_NS, **{field.name: field.kind(field.setting.most * 2)})
