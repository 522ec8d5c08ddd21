"""Tests of the figures of served programs, in short: the full size is ``weft bench --only serve``."""

import pytest

from weft.driver.ibverbs.build import build, missing
from weft.tb.app.serve.environment import LIBRARY_FOLDER
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.verify.programs import figures
from weft.tb.verify.programs.c_program import compiled
from weft.tb.verify.programs.session import serving


def test_cost_of_library_and_daemon_is_measured(tmp_path, monkeypatch):
    if (sentence := missing()) and not tools_expected():
        pytest.skip(sentence)
    for name, value in (("ROUNDS", 3), ("SPIN_S", 0.2), ("IDLE_S", 0.2), ("START_S", 1)):
        monkeypatch.setattr(figures, name, value)
    with serving("--preset", "test") as session:
        rows = {row.name: row for row in figures.times(session, compiled("post_poll", tmp_path, build(LIBRARY_FOLDER)))}
    assert 0 < rows["serve_post_poll_us"].value < rows["serve_post_poll_alone_us"].value
    assert 0 < rows["serve_empty_poll_core_fraction"].value < 1
    assert 0 < rows["serve_empty_poll_us"].value < 1000
    assert rows["serve_idle_daemon_core_fraction"].value >= 0
    assert [row.name for row in rows.values() if row.at_most is None] == ["serve_post_poll_alone_us"]
