"""Recording of the simulations of tests, without running a simulation.

Used as a plugin (``pytest -p weft.tb.verify.mutate.record``), this module replaces
:func:`weft.tb.sim.flow.simulate.simulate` by a recorder: each test is skipped as soon as it calls it.
"""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from weft.tb.sim.flow import simulate as flow
from weft.tb.sim.flow.run import Bench
from weft.tb.verify.mutate.sources import ROOT, module_of

ELABORATED = "rtlil:"       # replaces Verilog text; followed by the digest of its RTLIL
_FOLDER = "WEFT_RECORD"


class NotRecorded(Exception):
    """A test does not show its simulation. The message contains the name of the test."""


@dataclass(frozen=True)
class Simulation:
    """Call of :func:`weft.tb.sim.flow.simulate.simulate` by a test, with some of its arguments."""

    test: str       # pytest's name of the test
    rtlil: str      # digest of the elaborated design; `rtlil_of` returns the text
    top: str
    sim: str
    module: str     # the module with the cases
    tests: str | None
    env: tuple


def record(keys, where):
    """Store the :class:`Simulation` of tests, and their designs, in folder ``where``.

    ``keys`` maps pytest's name of a test to a key, with which :func:`is_recorded` compares. Raises NotRecorded if a
    test is not found or simulates nothing.
    """
    where.mkdir(parents=True, exist_ok=True)
    for test in keys:
        _kept(where, test).unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "weft.tb.verify.mutate.record",
               "-p", "no:cacheprovider", *keys]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, _FOLDER: str(where.absolute())})
    for test, key in keys.items():
        if done.returncode or not _kept(where, test).exists():
            raise NotRecorded(f"{test} does not show what it simulates:\n{(done.stdout + done.stderr)[-2000:]}")
        _kept(where, test).with_suffix(".key").write_text(key)


def is_recorded(test, where, key):
    """Return True if folder ``where`` holds the simulation of a test, recorded with ``key``."""
    kept = _kept(where, test).with_suffix(".key")
    return kept.exists() and kept.read_text() == key


def recorded(test, where):
    """Return the :class:`Simulation` of a test, from folder ``where``."""
    entry = json.loads(_kept(where, test).read_text())
    return Simulation(**{**entry, "env": tuple(map(tuple, entry["env"]))})


def rtlil_of(simulation, where):
    """Return the RTLIL text of a recorded simulation's design; ``src`` attributes are relative to the project."""
    return (where / f"{simulation.rtlil}.il").read_text()


def _kept(where, test):
    return where / f"{hashlib.sha256(test.encode()).hexdigest()[:12]}.json"


def _elaborate(component, top):
    """Replace :func:`weft.tb.sim.flow.simulate.elaborate`: store the RTLIL, return a placeholder for the Verilog."""
    from weft.hdl import verilog

    text = verilog.rtlil_text(component, top, emit_src=True).replace(f"{ROOT}{os.sep}", "")
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    (Path(os.environ[_FOLDER]) / f"{digest}.il").write_text(text)
    return ELABORATED + digest


def _simulate(component=None, *, verilog=None, optimize=None, everything=None, **bench):
    """Replace :func:`weft.tb.sim.flow.simulate.simulate`: store the arguments and end the test."""
    import pytest

    wanted, test = Bench(**bench), os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    design = verilog or _elaborate(component, wanted.top)
    if not design.startswith(ELABORATED):
        raise NotRecorded(f"{test} simulates separate Verilog")
    simulation = Simulation(test, design.removeprefix(ELABORATED), wanted.top, wanted.sim, module_of(wanted.cases),
                            wanted.tests, tuple(sorted(wanted.env.items())))
    _kept(Path(os.environ[_FOLDER]), test).write_text(json.dumps(asdict(simulation)))
    pytest.skip("recorded")


def pytest_configure():
    """Install the recorder before any test is imported, so that tests import it instead of the simulation."""
    flow.simulate, flow.elaborate = _simulate, _elaborate
