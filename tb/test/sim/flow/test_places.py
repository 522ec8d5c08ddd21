"""Tests of paths: builds can be moved, paths may have spaces, runs do not share folders."""

import collections
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weft.tb.sim.flow import build as flow_build
from weft.tb.sim.flow import cplusplus
from weft.tb.sim.flow.run import run_folder
from weft.tb.sim.flow.simulate import SIMULATORS, simulate
from weft.tb.test.sim.flow.test_process import Counter

CASES = Path(__file__).with_name("place_cases.py")
HERE = """
import sys
from weft.tb.sim.flow.simulate import simulate
from weft.tb.test.sim.flow.test_process import Counter
print(simulate(Counter(), name="places", cases=sys.argv[1], sim=sys.argv[2], waves=True))
"""


@pytest.mark.parametrize("sim", SIMULATORS)
def test_every_path_may_have_spaces(tmp_path, sim):
    """Spaces in the paths of the packages, simulators among them, the code, the build and the working folder."""
    site = next(Path(path) for path in reversed(sys.path) if (Path(path) / "cocotb").exists())
    place = tmp_path / "two  words, it's one"
    (place / "code/weft").mkdir(parents=True)
    (place / "site").symlink_to(site)
    root = Path(__file__).resolve().parents[4]
    for package in ("hdl", "tb", "driver", "model"):
        (place / "code/weft" / package).symlink_to(root / package)
    for name in (cplusplus.LIBRARY, cplusplus.WRITERS):     # all other libraries are compiled here
        for kept in flow_build.BUILD_ROOT.glob(f"{cplusplus.KEPT}{name}-*"):
            shutil.copytree(kept, place / "sim_build" / kept.name)
    environment = {**os.environ, "PYTHONPATH": f"{place / 'code'}:{place / 'site'}"}
    environment.pop("WEFT_BUILD", None)
    command = [sys.executable, "-c", HERE, str(place / "code/weft/tb/test/sim/flow" / CASES.name), sim]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    run = Path(done.stdout.splitlines()[-1])
    assert run.is_relative_to(place / "sim_build") and (run / "results.xml").exists()
    assert f"its code is in {place / 'code'}" in (run / "sim.log").read_text()
    (run / "results.xml").unlink()
    again = subprocess.run(["sh", run / "rerun.sh"], cwd="/", capture_output=True, text=True,
                           env={**os.environ, "COCOTB_TEST_FILTER": "none", "COCOTB_TESTCASE": "none"})
    assert again.returncode == 0 and (run / "results.xml").exists(), again.stdout + again.stderr


@pytest.mark.parametrize("sim", SIMULATORS)
def test_cached_build_runs_after_a_move(tmp_path, monkeypatch, sim):
    import cocotb_tools.config as config

    before, after = tmp_path / "before", tmp_path / "after"
    libraries = shutil.copytree(config.libs_dir, before / "libraries")
    for library in flow_build.BUILD_ROOT.glob(f"{cplusplus.KEPT}*"):    # saves half a minute; moves, too
        shutil.copytree(library, before / "build" / library.name)
    with monkeypatch.context() as patch:
        patch.setattr(config, "libs_dir", libraries)
        patch.setattr(flow_build, "BUILD_ROOT", before / "build")
        first = simulate(Counter(), name="places", cases=CASES, sim=sim)
    shutil.rmtree(libraries)
    before.rename(after)
    monkeypatch.setattr(flow_build, "BUILD_ROOT", after / "build")
    stamp = (after / first.relative_to(before).parent / "ready").stat().st_mtime_ns
    second = simulate(Counter(), name="places", cases=CASES, sim=sim)
    assert second.relative_to(after) == first.relative_to(before)
    assert (second.parent / "ready").stat().st_mtime_ns == stamp


def test_stopped_build_is_restarted(tmp_path, monkeypatch):
    monkeypatch.setattr(flow_build, "BUILD_ROOT", tmp_path)
    where = simulate(Counter(), name="places", cases=CASES).parent
    (where / "ready").unlink()
    (where / "half.o").touch()
    assert simulate(Counter(), name="places", cases=CASES).parent == where
    assert (where / "ready").exists() and not (where / "half.o").exists()


@pytest.mark.parametrize("where", ["build", "run"])
def test_failure_on_a_full_disk_names_the_disk(tmp_path, monkeypatch, where):
    free = collections.namedtuple("Usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free(0))
    fault = "fault\n" if where == "build" else ""    # the run fails because the bench finds no clock
    text = f"module top(o);\n  output o;\n{fault}endmodule\n"
    with pytest.raises(OSError, match="No space left on device"):
        simulate(verilog=text, top="top", name="places", cases=CASES)


def test_concurrent_runs_have_separate_folders(tmp_path):
    with run_folder(tmp_path, "run") as first, run_folder(tmp_path, "run") as second:
        assert first == tmp_path / "run" and second == tmp_path / "run-2"
        for folder in (first, second):
            (folder / "sub").mkdir()
            (folder / "sub/left").touch()
    with run_folder(tmp_path, "run") as third:
        assert third == first and {path.name for path in third.iterdir()} == {"lock"}


@pytest.mark.parametrize("name", ["COCOTB_TESTCASE", "COCOTB_TEST_FILTER", "COCOTB_TEST_MODULES", "COCOTB_MAX_FAILURES",
                                  "GPI_EXTRA", "RANDOM_SEED"])
def test_variables_of_cocotb_do_not_steer_a_run(monkeypatch, name):
    monkeypatch.setenv(name, "77")
    run = simulate(Counter(), name="places", cases=CASES, seed=5)
    assert "its seed is 5" in (run / "sim.log").read_text()


@pytest.mark.parametrize(("text", "recorded"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_waves_by_the_environment(monkeypatch, text, recorded):
    monkeypatch.setenv("WAVES", text)
    run = simulate(Counter(), name="places", cases=CASES)
    assert (run / "waves.fst").exists() == recorded


def test_other_values_of_waves_are_rejected(monkeypatch):
    monkeypatch.setenv("WAVES", "2")
    with pytest.raises(ValueError, match="WAVES is '2'; it must be 1 or 0"):
        simulate(verilog="", top="top", name="places", cases=CASES)
