"""Tests of the former names: reports have both names, and readers get the current one."""

import json

import pytest

from weft.tb.sim.flow import aliases, figures
from weft.tb.sim.flow.figures import Row
from weft.tb.verify.bench.benchmark import BENCHMARKS


def test_former_benchmarks_are_replaced_by_existing_ones():
    assert aliases.BENCHMARKS
    for former, name in aliases.BENCHMARKS.items():
        assert name in BENCHMARKS and former not in BENCHMARKS


def test_former_options_are_names_of_their_option():
    for former, name in aliases.OPTIONS.items():
        assert aliases.option_names(name) == (name, former)


@pytest.mark.parametrize(("former", "name"), aliases.FIGURES.items())
def test_report_has_a_figure_under_both_names(former, name, monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "REPORT", tmp_path / "bench.json")
    figures.REPORT.write_text(json.dumps([{"name": former, "unit": "", "value": 1.0, "command": "weft bench",
                                           "conditions": ""}]))
    assert figures.values() == {name: 1.0}, "a report of the former version is read"
    for _ in range(2):
        figures.merge_report([Row(name, "", 2.0)], "weft bench", whole=True)
        rows = json.loads(figures.REPORT.read_text())
        assert [(row["name"], row["value"], row.get("alias_of")) for row in rows] == [
            (name, 2.0, None), (former, 2.0, name)]
        assert figures.values() == {name: 2.0}


@pytest.mark.parametrize("report", aliases.FIELDS)
def test_report_has_a_field_under_both_names(report):
    for former, name in aliases.FIELDS[report].items():
        data = {"entries": [{name: [1], "other": 2}], name: 3}
        both = aliases.with_former_fields(report, data)
        assert both == {"entries": [{name: [1], former: [1], "other": 2}], name: 3, former: 3}
        assert aliases.current_fields(report, both) == data
        assert aliases.current_fields(report, {former: 3}) == {name: 3}, "a report of the former version is read"
