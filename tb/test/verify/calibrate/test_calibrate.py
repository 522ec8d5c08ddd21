"""Tests of calibration: scenarios, comparison, command; and some scenarios on gateware and model."""

import json
from dataclasses import replace

import pytest

from weft.model.card.pacer import SLOT_NS
from weft.tb.sim.flow import figures
from weft.tb.sim.scenario import runs
from weft.tb.sim.scenario.compare import Comparison, worst
from weft.tb.sim.scenario.runs import Gateware, run_functional, run_model
from weft.tb.sim.scenario.scenario import ALL, FIT, JUDGE, Scenario
from weft.tb.verify.calibrate import run as command

FITTING = {scenario.name: scenario for scenario in FIT}
SMALL = Scenario(name="small", bytes=16 * 1024, loss=0.2, rtt_us=2.0, seed=3)


@pytest.fixture(scope="module")
def small():
    return run_model(SMALL)


def test_scenarios_differ_and_are_separate_from_the_fitted_ones():
    assert len(JUDGE) >= 60 and len({scenario.name for scenario in ALL}) == len(ALL)
    assert all(scenario.judges for scenario in JUDGE) and not any(scenario.judges for scenario in FIT)
    chosen_by = [replace(scenario, name="", judges=True) for scenario in FIT]
    assert not [scenario.name for scenario in JUDGE if replace(scenario, name="") in chosen_by and scenario.loss]
    for axis in ("pmtu", "message_bytes", "qps", "loss", "burst", "again", "latency_ns", "jitter", "stall", "depth",
                 "watermark", "both", "rtt_us", "node_age_ns", "inline", "paced_gbps"):
        assert len({getattr(scenario, axis) for scenario in ALL}) > 1, f"{axis} is the same everywhere"


def test_small_scenario_is_equal_on_gateware_and_model(small):
    found = Comparison(SMALL, Gateware().run(SMALL), small, run_functional(SMALL))
    assert not found.problems
    assert small["counters"]["b"]["holes"] and small["counters"]["b"]["nodes_retired"]
    assert found.mismatches == []
    assert abs(found.gateware["cycles"] - small["cycles"]) < 1
    assert found.gateware["stall_cycles"] == small["stall_cycles"]


def same_sequences(scenario):
    """Compare a scenario on gateware and model; the same events must occur in the same order."""
    found = Comparison(scenario, Gateware().run(scenario), run_model(scenario))
    assert found.problems == [] and found.mismatches == []
    return found


# Each tests a rule of the gateware; the times differ by less than a cycle.
RULES = {
    "raw frames wait for whole payload frames": Scenario(
        name="both", bytes=32 * 1024, message_bytes=4096, both=True, rtt_us=2.0, seed=32),
    "reports take turns with payload at the write engine": Scenario(
        name="turns", bytes=32 * 1024, message_bytes=1024, qps=3, loss=0.05, rtt_us=2.0, seed=40),
    "the builder takes holes until it sees that a node is old": Scenario(
        name="ages", bytes=24 * 1024, pmtu=256, loss=0.1, node_age_ns=500, rtt_us=2.0, seed=33),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule_of_the_gateware_equals_that_of_the_model(rule):
    found = same_sequences(RULES[rule])
    assert abs(found.stall_error) <= 0.02
    assert abs(found.gateware["cycles"] - found.model["cycles"]) < 1


@pytest.mark.parametrize("name", ["fit-more-22", "fit-more-24", "fit-more-28"])
def test_headers_wait_for_nodes_as_long_as_in_the_gateware(name):
    """A header that passes over nodes misses later, by a cycle for each; stall cycles count from the next cycle on."""
    found = same_sequences(FITTING[name])
    assert found.gateware["stall_cycles"] == found.model["stall_cycles"] > 100


@pytest.mark.parametrize("name", ["fit-third-13", "fit-third-21"])
def test_slots_of_payload_and_lines_of_a_read_take_the_gatewares_time(name):
    """Slots are free when their last row was read; the lines of a read come one per cycle."""
    found = same_sequences(FITTING[name])
    assert abs(found.stall_error) <= 0.02 and abs(found.time_error) <= 0.001


def test_sent_and_lost_packets_equal_those_of_functional_cards(small):
    functional = run_functional(SMALL)
    assert Comparison(SMALL, small, small, functional).problems == []
    functional["counters"]["b"]["holes"] += 1
    holes = small["counters"]["b"]["holes"]
    assert Comparison(SMALL, small, small, functional).problems == [
        f"holes of b: {holes} on the gateware, {holes} on the model, {holes + 1} on functional cards"]


def altered(small, **changes):
    return Comparison(SMALL, small, {**small, **changes})


def test_errors_are_relative_to_the_gateware(small):
    same = altered(small)
    assert (same.time_error, same.stall_error, same.mismatches) == (0, 0, [])
    slow = altered(small, cycles=small["cycles"] * 1.5, stall_cycles=small["stall_cycles"] + 7)
    assert slow.time_error == pytest.approx(0.5) and slow.stall_error == 7 / max(small["stall_cycles"], 250)
    many = Comparison(SMALL, {**small, "stall_cycles": 700}, {**small, "stall_cycles": 707})
    assert many.stall_error == 0.01
    name = next(name for name in small["sequences"] if name.endswith("node"))
    assert altered(small, sequences={**small["sequences"], name: []}).mismatches == [name]
    assert altered(small, sequences={**small["sequences"], "more": [1]}).mismatches == ["more"]
    fit = Comparison(replace(SMALL, judges=False), small, {**small, "cycles": 0})
    assert worst([same, slow, fit]) == (2, slow.time_error, slow.stall_error, 0, 0)
    paced = [{**small, "paced_ns": {"a 1": ns}} for ns in (1000, 1003 + SLOT_NS)]
    assert Comparison(SMALL, *paced).paced_error == pytest.approx(0.003)
    assert Comparison(SMALL, small, paced[0]).paced_error == 1


class _Fake:
    """Stands in for the gateware: returns the model's result, with changes."""

    changes = {}

    def run(self, scenario):
        return {**run_model(scenario), **self.changes}


def test_command_shows_both_and_stores_the_figures(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(command, "Gateware", _Fake)
    monkeypatch.setattr(command, "REPORT", tmp_path / "calibration.json")
    monkeypatch.setattr(figures, "REPORT", tmp_path / "bench.json")
    assert command.run(scenarios=[SMALL, replace(SMALL, name="chosen", judges=False)]) == 0
    printed = capsys.readouterr().out
    assert "small" in printed and "judges" in printed and "chosen by" in printed
    kept = json.loads((tmp_path / "calibration.json").read_text())
    assert [one["name"] for one in kept] == ["small", "chosen"] and kept[0]["scenario"]["loss"] == SMALL.loss
    found = {row["name"]: row["value"] for row in json.loads((tmp_path / "bench.json").read_text())}
    assert found == {"calibration_scenarios": 1, "calibration_time_error_max": 0.0,
                     "calibration_stall_error_max": 0.0, "calibration_paced_error_max": 0.0,
                     "calibration_sequence_mismatches": 0}


@pytest.mark.parametrize(("changes", "words"), [
    ({"cycles": 1.0}, "calibration_time_error_max"), ({"stall_cycles": 1000}, "calibration_stall_error_max"),
    ({"sequences": {}}, "calibration_sequence_mismatches"), ({"paced_ns": {"a 1": 1}}, "calibration_paced_error_max"),
    ({"problems": ["bytes"]}, "something went wrong in small")])
def test_command_fails_on_a_difference(monkeypatch, tmp_path, capsys, changes, words):
    monkeypatch.setattr(_Fake, "changes", changes)
    monkeypatch.setattr(command, "Gateware", _Fake)
    monkeypatch.setattr(command, "REPORT", tmp_path / "calibration.json")
    assert command.run(["sm"], scenarios=[SMALL]) == 1
    assert words in capsys.readouterr().err and not (tmp_path / "calibration.json").exists()


def test_unknown_scenario_prints_a_sentence(capsys):
    assert command.run(["nothing"]) == 2
    assert capsys.readouterr().err.startswith("weft: no scenario begins with nothing; the first ones are fit-")


def test_results_are_cached_by_content(monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "KEPT", tmp_path)
    gateware = Gateware()
    assert gateware.kept(SMALL) is None
    gateware._file(SMALL).write_text("{")
    assert gateware.kept(SMALL) is None
    gateware._file(SMALL).write_text('{"cycles": 1}')
    assert gateware.kept(replace(SMALL, name="another", judges=False)) == {"cycles": 1}
    assert gateware.kept(replace(SMALL, seed=4)) is None
