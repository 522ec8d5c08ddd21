"""Build a simulator for a component and run cocotb tests in it.

:func:`simulate` is the one entry: component (or ready Verilog) → Verilog → simulator → bench → verdict. Everything
it makes lies in ``sim_build/<name>-<hash>/``; the hash covers the Verilog, the options and the simulator's version,
so a second run builds nothing. Each run has a folder of its own below it with the log, the results, the waves and
``rerun.sh``, which repeats exactly this run.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import random
import re
import shlex
import subprocess
from pathlib import Path
from xml.etree import ElementTree

from weft.tb.flow import simulators
from weft.tb.flow.simulators import SIMULATORS, MissingSimulator

__all__ = ["SIMULATORS", "MissingSimulator", "BUILD_ROOT", "bench_seed", "build", "elaborate", "simulate"]

BENCHES = Path(__file__).resolve().parents[1]
BUILD_ROOT = Path(os.environ.get("WEFT_BUILD", Path.cwd() / "sim_build")).absolute()
LOG_LINES = 40
_ASSERTION = re.compile(r"^(ERROR: .*|%Error: .*Assertion failed.*|.*\bassertion failed\b.*)$", re.IGNORECASE)
_PORT = re.compile(r"^\s*(input|output)\s+(?:wire\s+|reg\s+|logic\s+)?(?:\[(\d+):0\]\s*)?\\?([\w$.]+)\s*[;,)]?\s*$",
                   re.MULTILINE)


def bench_seed():
    """Seed of this run. A bench takes all its randomness from it: ``random.Random(bench_seed())``."""
    return int(os.environ["WEFT_SEED"])


@contextlib.contextmanager
def locked(path):
    """Hold the lock file ``path``: other processes that want it wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def elaborate(component, top):
    """Verilog text of a component with a signature; flattened members are the ports of module ``top``.

    The yosys step is the slow one, so its output is kept, keyed by the RTLIL text and the writer's own.
    """
    from weft.hdl import verilog

    text = verilog.rtlil_text(component, top)
    digest = hashlib.sha256(text.encode() + Path(verilog.__file__).read_bytes()).hexdigest()[:16]
    kept = BUILD_ROOT / "verilog" / f"{top}-{digest}.v"
    with locked(kept.with_suffix(".lock")):
        if not kept.exists():
            part = kept.with_suffix(".part")
            part.write_text(verilog.verilog_text(text))
            part.rename(kept)
    return kept.read_text()


def top_ports(text, top):
    """Ports of module ``top`` in Verilog text, one declaration per line: ``{name: (direction, width)}``."""
    found = re.search(rf"^module \\?{re.escape(top)}\s*[(#;].*?^endmodule", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"no module {top!r} in the Verilog text")
    return {name: (way, int(high or 0) + 1) for way, high, name in _PORT.findall(found[0])}


def build(text, *, top, name, sim, waves=False, optimize="build", everything=False):
    """Build (or find) the simulator of Verilog ``text`` and return its folder.

    Parameters
    ----------
    optimize : str
        ``"build"``: compile quickly, for blocks. ``"run"``: simulate quickly, for long runs. Verilator only.
    everything : bool
        Let the bench see every signal, not the ports of ``top`` alone: several times slower under Verilator.
    """
    tool = simulators.tool(sim)
    wave_kind = tool.wave_kind() if waves else None
    options = [sim, tool.version(), top, wave_kind, optimize, everything, tool.OPTIONS_VERSION]
    digest = hashlib.sha256("\0".join([text, *map(str, options)]).encode()).hexdigest()[:12]
    where = BUILD_ROOT / f"{name}-{digest}"
    with locked(BUILD_ROOT / ".locks" / f"{name}-{digest}"):
        if not (where / "ready").exists():
            where.mkdir(parents=True, exist_ok=True)
            ports = top_ports(text, top)
            (where / f"{top}.v").write_text(text)
            (where / "ports.json").write_text(json.dumps(ports, indent=1))
            log = where / "build.log"
            log.unlink(missing_ok=True)
            try:
                tool.build(where, top=top, ports=ports, wave_kind=wave_kind, optimize=optimize,
                           everything=everything, log=log)
            except simulators.BuildFailed as error:
                raise AssertionError(
                    f"{name}: {sim} does not build it ({error}); {log} ends with\n{_tail(log)}") from None
            (where / "ready").write_text("\n".join(map(str, options)) + "\n")
    return where


def simulate(component=None, *, name, cases, sim="icarus", seed=None, env=None, waves=False, verilog=None, top=None,
             tests=None, optimize="build", everything=False, live=False, timeout_s=900):
    """Run the cocotb tests of file ``cases`` on a component; raise ``AssertionError`` unless all pass.

    Parameters
    ----------
    component : wiring.Component, optional
        What is simulated. Its signature's members, flattened with ``__``, are the ports; ``clk`` and ``rst`` are
        added if it has registers.
    verilog, top : str, optional
        Verilog text and the name of its top module, instead of ``component``.
    name : str
        Names the build folder.
    cases : path
        File with the ``@cocotb.test()`` coroutines; ``__file__`` where they stand beside the pytest test.
    sim : str
        ``"icarus"`` or ``"verilator"``.
    seed : int, optional
        Otherwise ``WEFT_SEED`` of the environment, otherwise a fresh one; see :func:`bench_seed`.
    env : dict, optional
        More environment for the bench.
    waves : bool
        Record waves (also by ``WAVES=1`` in the environment) into ``waves.fst`` or ``waves.vcd`` of the run folder.
    tests : str, optional
        Regular expression: only these tests of the bench.
    optimize, everything
        See :func:`build`.
    live : bool
        Show the bench's log while it runs.
    timeout_s : float
        Wall-clock limit of the simulation.

    Returns
    -------
    Path
        The run's folder.
    """
    try:
        simulators.tool(sim).check()
    except MissingSimulator as missing:
        if os.environ.get("PYTEST_CURRENT_TEST") and os.environ.get("CI", "").lower() not in ("true", "1"):
            import pytest
            pytest.skip(str(missing))
        raise AssertionError(str(missing)) from None
    waves = waves or os.environ.get("WAVES", "").lower() in ("1", "yes", "true")
    if seed is None:
        seed = int(os.environ.get("WEFT_SEED") or random.SystemRandom().getrandbits(31))
    if verilog is None:
        top = top or "top"
        verilog = elaborate(component, top)
    where = build(verilog, top=top, name=name, sim=sim, waves=waves, optimize=optimize, everything=everything)
    run = where / run_name(cases)
    with locked(run / "lock"):
        return _run(where, run, name=name, top=top, cases=cases, sim=sim, seed=seed, env=env or {}, waves=waves,
                    tests=tests, live=live, timeout_s=timeout_s)


def _run(where, run, *, name, top, cases, sim, seed, env, waves, tests, live, timeout_s):
    log, results = run / "sim.log", run / "results.xml"
    results.unlink(missing_ok=True)
    command, variables = simulators.tool(sim).command(where, top=top, run=run, waves=waves)
    variables |= {
        "COCOTB_TEST_MODULES": module_name(cases), "COCOTB_TOPLEVEL": top, "TOPLEVEL_LANG": "verilog",
        "COCOTB_RESULTS_FILE": str(results), "COCOTB_RANDOM_SEED": str(seed), "COCOTB_ANSI_OUTPUT": "0",
        "WEFT_SEED": str(seed), "WEFT_RUN": str(run), "WEFT_PORTS": str(where / "ports.json"), "WEFT_SIM": sim,
        "PYTHONUNBUFFERED": "1", **({"COCOTB_TEST_FILTER": tests} if tests else {}), **env,
    }
    _write_rerun(run / "rerun.sh", command, variables)
    finished = _execute(command, run, {**os.environ, **variables}, log, live, timeout_s)
    problems = _problems(log, results, finished, timeout_s)
    if problems:
        raise AssertionError("\n".join([
            f"{name} under {sim}: {'; '.join(problems)}", f"--- end of {log}", _tail(log), "---",
            f"seed {seed}; run it again: {_again(seed, run)}"]))
    return run


def _execute(command, run, environment, log, live, timeout_s):
    """Run the simulator; its exit status, or None after the wall-clock limit."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command, cwd=run, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=None if live else out, stderr=subprocess.STDOUT if not live else None)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()
            process.wait()


def _problems(log, results, status, timeout_s):
    """What speaks against the run having passed, in sentences."""
    problems = []
    if status is None:
        problems.append(f"still running after {timeout_s} s of wall clock")
    elif status != 0:
        problems.append(f"the simulator ended with status {status}")
    asserted = [line for line in log.read_text(errors="replace").splitlines() if _ASSERTION.match(line)]
    if asserted:
        problems.append(f"{len(asserted)} failed assertion(s) in the HDL, the first: {asserted[0].strip()}")
    if not results.exists():
        return [*problems, "it left no results"]
    cases = ElementTree.parse(results).getroot().findall(".//testcase")
    ran = [case for case in cases if case.find("skipped") is None]
    failed = [case.get("name") for case in ran if case.find("failure") is not None or case.find("error") is not None]
    if not ran:
        problems.append("no test was run")
    if failed:
        problems.append(f"{len(failed)} of {len(ran)} tests failed: {', '.join(failed)}")
    return problems


def module_name(cases):
    """Dotted name of the module in file ``cases``, as the simulator's Python imports it.

    Raises
    ------
    ValueError
        If it is not a file of ``weft.tb``.
    """
    try:
        inside = Path(cases).resolve().relative_to(BENCHES)
    except ValueError:
        raise ValueError(f"{cases} is not below {BENCHES}") from None
    return ".".join(["weft.tb", *inside.with_suffix("").parts])


def run_name(cases):
    """A folder name for this run: the pytest test it belongs to, or the file of the cases."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].partition(" ")[0]
    return "run-" + re.sub(r"[^\w.-]+", "_", f"{Path(cases).stem}-{test}").strip("_-")


def _again(seed, run):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    return f"WEFT_SEED={seed} python -m pytest {shlex.quote(test)}" if test else f"sh {run / 'rerun.sh'}"


def _write_rerun(path, command, variables):
    assignments = "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in sorted(variables.items()))
    path.write_text(f"#!/bin/sh\n# Repeats this simulation run.\ncd {shlex.quote(str(path.parent))}\n{assignments}"
                    f"exec {shlex.join(map(str, command))}\n")


def _tail(log):
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-LOG_LINES:])
