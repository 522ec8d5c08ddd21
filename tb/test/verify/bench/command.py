"""``weft bench`` with its report and its progress in a folder of a test."""

import json

from typer.testing import CliRunner

from weft.tb.cli import app
from weft.tb.sim.flow import figures
from weft.tb.verify.bench import run


def bench(monkeypatch, folder, *options, within=True):
    """Run ``weft bench`` with options; return the rows of its report as dicts.

    ``within``: every figure keeps its limit. Limits hold at full size, and at some smaller sizes.
    """
    monkeypatch.setattr(figures, "REPORT", folder / "bench.json")
    monkeypatch.setattr(run, "PROGRESS", folder / "progress")
    done = CliRunner().invoke(app, ["bench", *options])
    assert done.exit_code in ((0,) if within else (0, 1)), f"{done.output}{done.exception!r}"
    assert figures.REPORT.exists(), f"no figure: {done.output}"
    return json.loads(figures.REPORT.read_text())
