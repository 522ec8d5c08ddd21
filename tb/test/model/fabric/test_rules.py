"""Compiled rules against the objects of the driver, decision by decision."""

import random
import typing

import pytest

from weft.driver.congestion.algorithms import ALGORITHMS, create
from weft.driver.terms.settings import fields
from weft.model.fabric import engine, rules
from weft.tb.test.driver.congestion.events import DELAY_NS, EVENTS, LINE, random_events
from weft.tb.test.model.fabric.small_runs import line, start


@engine.entry
def _report(w, event, now, a, b):
    """Report an event of the first flow."""
    w.s.now = now
    if event == 0:
        rules.on_ack(w, 0, int(a), int(b))
    elif event == 1:
        rules.on_delay(w, 0, a)
    elif event == 2:
        rules.on_cnp(w, 0)
    else:
        rules.on_loss(w, 0, int(a))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_decision_equals_that_of_the_driver(name, seed):
    w, one = start(line(), name), create(name, LINE, DELAY_NS)
    record = getattr(w, name.replace("-", "_"))[0]
    rules.store(record, one)
    w.flow["rate"], w.flow["limit"] = one.rate / 8e9, one.limit
    for event, now, arguments in random_events(random.Random(seed), 3000):
        getattr(one, event)(now, *arguments)
        _report(w, EVENTS.index(event), now, *(float(a) for a in (*arguments, 0, 0)[:2]))
        assert w.flow[0]["rate"] * 8e9 == pytest.approx(one.rate, rel=1e-9) and w.flow[0]["limit"] == one.limit
        for field, hint in typing.get_type_hints(type(one)).items():
            if hint in (int, float):
                assert record[field] == pytest.approx(getattr(one, field), rel=1e-9), field


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "none"])
def test_records_have_all_settings(name):
    """A field that the record lacks would be a rule without its setting."""
    w, one = start(line(), name), create(name, LINE, DELAY_NS)
    record = getattr(w, name.replace("-", "_"))[0]["settings"]
    assert {field: record[field] for field in record.dtype.names} == pytest.approx(
        {field: getattr(one.settings, field) for field in fields(type(one.settings))})
