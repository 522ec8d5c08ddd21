"""Settings passed into a simulator run, and the result passed out of it, both as JSON."""

import json
import os
from pathlib import Path

from weft.tb.sim.flow.simulate import simulate

VARIABLE, RESULT = "WEFT_SETTINGS", "result.json"


def run_bench(component=None, *, settings=None, env=None, **options):
    """Run a bench as :func:`~weft.tb.sim.flow.simulate.simulate` does, with ``settings`` for :func:`given`.

    Return the value that the bench passed to :func:`leave`; None if it passed none.
    """
    result = simulate(component, env={VARIABLE: json.dumps(settings), **(env or {})}, **options) / RESULT
    return json.loads(result.read_text()) if result.exists() else None


def given():
    """Return the settings of this run. Called inside the simulator."""
    return json.loads(os.environ[VARIABLE])


def leave(result):
    """Write the result of this run. Called inside the simulator."""
    Path(os.environ["WEFT_RUN"], RESULT).write_text(json.dumps(result))
