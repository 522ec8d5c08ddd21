"""Tests of the worked examples in ``examples/``: they run, with the expected results."""

import hashlib
import importlib.util
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from weft.tb.app.stage.stage import Stage, play
from weft.tb.sim.flow.seed import drawn_seed

FOLDER = Path(__file__).resolve().parents[3] / "examples"
LINES_MAX = 135      # two screens


def run(name, *words):
    """Run an example that must succeed; return its output."""
    done = subprocess.run([sys.executable, FOLDER / name, *map(str, words)], capture_output=True, text=True,
                          timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def module(name):
    """Return the example as a module."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, FOLDER / name)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


LAST_ACKNOWLEDGEMENT_LOST = 1_622_144_290      # of 300,001 bytes: the server must not exit at once


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.name)
def test_example_is_short_and_states_its_command(file):
    text = file.read_text()
    assert text.count("\n") <= LINES_MAX
    assert f"python examples/{file.name}" in text.split('"""')[1]


@pytest.mark.parametrize("fixed", [None, LAST_ACKNOWLEDGEMENT_LOST])
def test_file_of_any_size_is_copied(tmp_path, fixed):
    seed = drawn_seed() if fixed is None else fixed
    print(f"seed {seed}")
    file = tmp_path / "file"
    for size in (1, 65_536, 300_001):
        file.write_bytes(random.Random(seed + size).randbytes(size))
        text = run("file_copy.py", file, "--seed", seed)
        assert text.splitlines() == [f"{size} bytes, sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}",
                                     "the digests agree"]


def test_missing_file_is_rejected(tmp_path):
    (tmp_path / "empty").touch()
    for file in (tmp_path, tmp_path / "missing", tmp_path / "empty"):
        done = subprocess.run([sys.executable, FOLDER / "file_copy.py", file], capture_output=True, text=True,
                              check=False)
        assert done.returncode == 2 and "not a file with something in it" in done.stderr


def test_store_returns_the_last_value():
    assert run("key_value.py").splitlines() == [
        "warp: warp twice", "weft: WEFT", "loom: LOOM", "shuttle: shuttle twice", "nobody: None",
        "4 entries in the server's memory"]


def test_store_holds_as_many_values_as_entries(monkeypatch):
    """All of them fit, over a bad link; one more is rejected."""
    seed = drawn_seed()
    print(f"seed {seed}")
    example = module("key_value.py")
    monkeypatch.setattr(example, "ENTRIES", 8)
    words = [f"{n} {seed}" for n in range(example.ENTRIES - 1)]
    values, entries = play((example.client, example.server), stage=Stage(loss=0.05, rtt_us=2, seed=seed), words=words)
    assert entries == len(words) and values == {"nobody": None} | {
        word: f"{word} twice" if n % 3 == 0 else word.upper() for n, word in enumerate(words)}
    with pytest.raises(RuntimeError, match="full"):
        play((example.client, example.server), words=[str(n) for n in range(example.ENTRIES + 1)])


@pytest.mark.cards
@pytest.mark.parametrize("name", ["file_copy.py", "key_value.py"])
def test_an_example_runs_on_the_rtl(name, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(os.urandom(2_000))
    text = run(name, *([file] if name == "file_copy.py" else ["warp"]), "--rtl")
    assert ("the digests agree" if name == "file_copy.py" else "warp: warp twice") in text
