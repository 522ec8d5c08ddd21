"""Tests of ``weft sweep``: points, cached results, and error messages."""

import errno
import itertools
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from weft.model.wan import result
from weft.tb.app.sweep import run
from weft.tb.app.sweep.plan import read
from weft.tb.app.sweep.plans import PLANS
from weft.tb.cli import app
from weft.tb.sim.flow import failure
from weft.tb.test.model.ready import compile_once

SMALL = ["rtt_ms=0.05", "warmup_rtts=2", "measured_rtts=4", "scheme=adamap,oracle"]


def sweep(*arguments):
    """Run ``weft sweep``; return (exit status, output)."""
    done = CliRunner().invoke(app, ["sweep", *map(str, arguments)])
    return done.exit_code, done.output


def refused(*arguments):
    status, output = sweep(*arguments)
    assert status == 2 and output.startswith("weft: ") and output.count("\n") == 1, output
    return output


def test_finished_points_are_not_run_again(tmp_path):
    compile_once(result)
    table, plan = tmp_path / "points.parquet", tmp_path / "plan.toml"
    plan.write_text('[vary]\nloss = [0.0, 0.01]\n[picture]\nx = "loss"\ny = "goodput"\nlog = ["x"]\n')
    status, output = sweep(*SMALL, "--plan", plan, "--output", table)
    assert status == 0, output
    first = pq.read_table(table)
    rows = first.to_pylist()
    assert {(row["scheme"], row["loss"]) for row in rows} == {(s, p) for s in ("adamap", "oracle") for p in (0, 0.01)}
    assert all(row["goodput"] == 1 for row in rows if not row["loss"]) and {row["seed"] for row in rows} == {1}
    assert b"weft" in first.schema.metadata[b"command"] and first.schema.metadata[b"version"]
    assert table.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    shown = [tuple(line.split()[:2]) for line in output.splitlines() if line.split()[1:2] in (["adamap"], ["oracle"])]
    assert shown == [(p, s) for p in ("0.0", "0.01") for s in ("adamap", "oracle")], output
    assert "of all: rate_gbps 100, rtt_ms 0.05, " in output and "qps 1" in output, output
    assert sweep(*SMALL, "loss=0,0.01,0.02", "--output", table)[0] == 0
    again = pq.read_table(table).to_pylist()
    assert [row["seconds"] for row in again[:4]] == [row["seconds"] for row in rows], "points were run again"
    assert len(again) == 6


def test_full_disk_is_not_reported_as_missing_scheduler(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "points.parquet")

    compile_once(result)
    monkeypatch.setattr(run.table, "save", full)
    status, output = sweep("scheme=oracle", "rtt_ms=0.05", "--output", tmp_path / "points.parquet")
    assert status == 1 and output.startswith("weft: the disk of 'points.parquet' is full; ")


def test_interrupt_ends_at_once_and_keeps_finished_points(tmp_path, monkeypatch, capsys):
    """Not by the end of the process: threads of Dask go on with their points until then."""
    class Ended(BaseException):
        pass

    def interrupted(dask, subject, points, results=run.results):
        yield next(results(dask, subject, points))
        raise KeyboardInterrupt

    def end(status):
        raise Ended(status)

    compile_once(result)
    monkeypatch.setattr(run, "results", interrupted)
    monkeypatch.setattr(failure.os, "_exit", end)
    monkeypatch.setattr(failure.signal, "signal", lambda *_: None)      # this process continues
    file = tmp_path / "points.parquet"
    with pytest.raises(Ended, match="130"):
        run.run(read(None, [*SMALL, "loss=0,0.01"], None), file, command="weft sweep", scheduler=None, jobs=1)
    assert capsys.readouterr().err == "weft: stopped; the table has what was finished\n"
    assert len(pq.read_table(file).to_pylist()) == 1


def test_two_cards_are_points_on_rtl_and_model(tmp_path):
    table, plan = tmp_path / "cards.parquet", tmp_path / "cards.toml"
    plan.write_text('of = "cards"\n[fixed]\nbytes = 8192\nrtt_us = 2.0\n[vary]\nbackend = ["rtl", "model"]\n'
                    'loss = [0.0, 0.3]\n[picture]\nx = "loss"\n')
    status, output = sweep("--plan", plan, "--output", table)
    assert status == 0 and "goodput_gbps" in output, output
    rows = {(row["backend"], row["loss"]): row for row in pq.read_table(table).to_pylist()}
    assert set(rows) == set(itertools.product(("rtl", "model"), (0.0, 0.3)))
    for loss in (0.0, 0.3):
        rtl, model = rows["rtl", loss], rows["model", loss]
        assert abs(model["cycles"] / rtl["cycles"] - 1) < 0.05
        assert all(model[name] == rtl[name] for name in ("packets", "retransmissions", "holes", "nodes"))
    assert rows["rtl", 0.3]["retransmissions"] > 0 and not rows["rtl", 0.0]["retransmissions"]
    assert rows["rtl", 0.0]["goodput_gbps"] > rows["rtl", 0.3]["goodput_gbps"] > 0
    assert table.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert sweep("--of", "cards", "backend=model", "loss=0.3", "bytes=8192", "rtt_us=2", "--output", table)[0] == 0
    assert len(pq.read_table(table)) == 4, "a point was run again"
    assert "not a table of this sweep" in refused("--output", table)


def test_failed_run_of_cards_is_reported_and_others_are_kept(tmp_path, monkeypatch):
    def run_model(scenario):
        raise AssertionError(f"{scenario.loss} is too much\nand more")

    monkeypatch.setattr("weft.tb.sim.scenario.runs.run_model", run_model)
    table = tmp_path / "cards.parquet"
    status, output = sweep("--of", "cards", "backend=model", "loss=0.3", "--output", table)
    assert status == 1 and "model at loss 0.3: 0.3 is too much" in output and "and more" not in output
    assert len(pq.read_table(table)) == 0


@pytest.mark.parametrize(("arguments", "words"), [
    (["speed=3"], "is not a setting"), (["loss"], "NAME=VALUE"), (["loss=2"], "from 0 to 0.5"), (["loss=much"], "much"),
    (["scheme=tcp"], "choose one of"), (["marker=perhaps"], "marker"),
    (["qps=1.5"], "whole number"), (["--jobs", "x"], "--jobs"),
    (["--plan", "/nonexistent"], "does not exist"), (["loss=0,2"], "from 0 to 0.5"),
    (["--of", "boards"], "choose one of wan, cards"), (["--of", "cards", "scheme=adamap"], "is not a setting"),
    (["--of", "cards", "backend=verilog"], "choose one of rtl, model"), (["--of", "cards", "loss=2"], "from 0 to 0.5"),
    (["--of", "cards", "qps=0"], "from 1 to 12"), (["--of", "cards", "pmtu=1000"], "choose one of"),
    (["--of", "cards", "both=perhaps"], "true or false"), (["--of", "cards", "depth=1.5"], "whole number"),
    (["--of", "cards", "inline=true"], "at most 64"), (["--of", "cards", "bytes=2", "qps=3"], "3 QPs"),
])
def test_impossible_settings_print_a_sentence_and_exit_with_2(arguments, words):
    assert words in refused(*arguments)


@pytest.mark.parametrize(("text", "words"), [
    ("vary = 3 4", "not a TOML"), ("[vary]\nloss = 0.1\n", "not a list"), ("[more]\n", "no table"),
    ("[fixed]\nspeed = 1\n", "has no 'speed'"), ('[picture]\nx = "colour"\n', "neither"),
    ("[vary]\nseed = []\n", "not a list"), ("of = 3\n", "choose one of"),
    ('of = "cards"\n[fixed]\nscheme = "adamap"\n', "a run of two cards has no 'scheme'"),
    ("fixed = 3\n", "not a table"), ('picture = ["x"]\n', "not a table"), ('[picture]\nx = ["loss"]\n', "neither"),
    ("[picture]\nlog = 3\n", "not a list of axes"),
])
def test_invalid_plan_is_rejected(tmp_path, text, words):
    plan = tmp_path / "plan.toml"
    plan.write_text(text)
    assert words in refused("--plan", plan)


def test_foreign_or_damaged_table_is_rejected_and_kept(tmp_path):
    table = tmp_path / "points.parquet"
    for content, words in ((b"something else", "cannot be read"), (b"", "cannot be read")):
        table.write_bytes(content)
        assert words in refused("--output", table) and table.read_bytes() == content
    pq.write_table(pa.table({"x": [1]}), table)
    assert "not a table of this sweep" in refused("--output", table)


def test_unreachable_scheduler_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.tb.app.sweep.run.CONNECT_S", 0.5)
    output = refused("--scheduler", "tcp://127.0.0.1:1", "--output", tmp_path / "points.parquet")
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:1'" in output
    assert "no Dask scheduler" in refused("--scheduler", "nonsense://", "--output", tmp_path / "points.parquet")


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_included_plans_are_valid(plan):
    found = read(plan, [])
    assert len(found.points) > 1 and found.picture
