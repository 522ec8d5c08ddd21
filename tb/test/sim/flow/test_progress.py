"""Tests of progress where output is not a terminal: a line for each long phase, and more at intervals."""

import io
import time

import pytest
from rich.console import Console

from weft.tb.sim.flow import progress


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock by one that the test sets."""
    now = {"s": 1000.0}
    monkeypatch.setattr(progress.time, "monotonic", lambda: now["s"])
    return now


def test_a_long_phase_is_named_and_named_again(clock):
    out = io.StringIO()
    lines = progress.Lines(Console(file=out, width=20))
    for _ in range(700):        # 70 s of a phase, and 4 s of another one
        lines.show("building a simulator with a long name")
        clock["s"] += 0.1
    for _ in range(40):
        lines.show("short", 0.5)
        clock["s"] += 0.1
    for _ in range(360):
        lines.show("sending", 0.25)
        clock["s"] += 0.1
    name = "building a simulator with a long name"
    assert out.getvalue().splitlines() == [f"{name}: 5 s", f"{name}: 35 s", f"{name}: 65 s", "sending: 25%, 5 s",
                                           "sending: 25%, 35 s"]


def test_a_phase_prints_lines_beside_its_work(monkeypatch):
    monkeypatch.setattr(progress, "FIRST_S", 0)
    monkeypatch.setattr(progress, "POLL_S", 0.01)
    out = io.StringIO()

    def work():
        while not out.getvalue():
            time.sleep(0.01)

    progress.beside_bar(Console(file=out), None, work, {"phase": "building"})
    assert out.getvalue() == "building: 0 s\n"


def test_work_is_reported_by_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_S", 0)
    monkeypatch.setattr(progress, "POLL_S", 0.01)
    out, file = io.StringIO(), tmp_path / "progress.jsonl"

    def work():
        while "starting" not in out.getvalue():
            time.sleep(0.01)
        progress.report_progress(file, "sending", 1, 4)
        while "sending" not in out.getvalue():
            time.sleep(0.01)
        return "done"

    assert progress.beside_bar(Console(file=out), file, work, {"phase": "starting"}) == "done"
    first, second = out.getvalue().splitlines()
    assert first == "starting: 0 s" and second == "sending: 25%, 0 s"
