"""Rows of ``weft linux`` with cases that fail, without guests."""

import contextlib
from types import SimpleNamespace

from weft.tb.verify.linux import run
from weft.tb.verify.linux.cases import Case
from weft.tb.verify.linux.guest import GuestFailed


def fails(lab):
    raise GuestFailed("no agent")


def passes(lab):
    return {"rounds": (3, "")}


def test_cases_follow_a_failed_one_but_not_a_failed_boot(monkeypatch, capsys):
    lab = SimpleNamespace(guests={}, ended=False)
    monkeypatch.setattr(run, "Lab", lambda folder, **_: contextlib.nullcontext(lab))
    cases = [Case("first", fails), Case("second", passes)]
    assert [(row["status"], row["reason"]) for row in run.rows("functional", cases)] == [
        ("failed", "no agent"), ("passed", "")]
    assert "no agent" in (output := capsys.readouterr().out) and "rounds 3" in output
    monkeypatch.setattr(run, "boot", fails)
    assert [row["status"] for row in run.rows("functional", cases)] == ["failed"]
