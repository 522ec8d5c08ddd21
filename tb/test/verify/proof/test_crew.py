"""Tests that an interrupted proof leaves no model checker running."""

import os
import signal
import stat

import pytest

from weft.tb.test.sim.flow.test_process import LIMIT_S, NESTED, Pipe, start
from weft.tb.verify.proof import checkers
from weft.tb.verify.proof.run import crew
from weft.tb.verify.proof.specification import Property

PROOF = """
import sys
from pathlib import Path
from weft.tb.verify.proof import checkers, engine
from weft.tb.verify.proof.run import crew
from weft.tb.test.verify.proof.sample import CounterSpec
checkers.yosys.yosys = lambda script: [sys.argv[1]]
engine.BUILD_ROOT = Path(sys.argv[2])
def work():
    list(engine.prove(CounterSpec()))
with crew(1) as pool:
    pool.submit(work).result()
"""


def slow_checker(folder):
    """Return a pipe, and a program that holds its other end and does not end by itself."""
    checker = folder / "checker"
    checker.write_text(f"#!/bin/sh\nexec > {folder}/alive\n{NESTED}\n")
    checker.chmod(checker.stat().st_mode | stat.S_IXUSR)
    return Pipe(folder / "alive"), checker


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_model_checker_ends_with_its_parent(tmp_path, number):
    pipe, checker = slow_checker(tmp_path)
    parent = start(PROOF, checker, tmp_path)
    pipe.begun(2)
    os.kill(parent.pid, number)
    pipe.wait_until_closed()
    assert parent.wait(LIMIT_S) != 0
    pipe.close()


def test_too_slow_model_checker_is_stopped(tmp_path, monkeypatch):
    pipe, checker = slow_checker(tmp_path)
    monkeypatch.setattr(checkers, "_run", lambda where, steps: (where / "0-bounded.aig").touch())
    monkeypatch.setattr(checkers, "LATE_S", 0)
    monkeypatch.setattr(checkers.yosys, "abc", lambda script: [checker])
    assert checkers.abc(tmp_path, [0], Property("slow", bound=2, seconds=1)) == ("unknown", None)
    pipe.wait_until_closed()
    pipe.close()


def test_failure_ends_the_other_checks():
    def work():
        with crew(2) as pool:
            pool.submit(signal.pause)
            pool.submit(divmod, 1, 0).result()

    with pytest.raises(ZeroDivisionError):
        work()
