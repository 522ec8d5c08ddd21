"""Tests of the messages about missing programs and headers in a run of the tests."""

import os
import subprocess
import sys
from pathlib import Path

from weft.tb.test.system import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]


def summary(path):
    """Return the output of pytest for a test without requirements, with these folders as search path of programs."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only",
                           "tb/test/test_system.py"], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "PATH": path, "PYTEST_ADDOPTS": ""})
    return done.stdout


def test_missing_program_is_named_with_its_package(tmp_path):
    text = summary(str(tmp_path))
    assert "missing from the system" in text
    assert "iverilog: every bench that runs under Icarus too is skipped there" in text
    assert "on Debian: apt-get install iverilog tshark qemu-system-x86 chromium" in text


def test_missing_headers_are_reported(tmp_path):
    """With programs that exist but do nothing, and a compiler that finds no header."""
    for name in (*PROGRAMS, "g++"):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {int(name == 'g++')}\n")
        (tmp_path / name).chmod(0o755)
    assert "on Debian: apt-get install liblz4-dev zlib1g-dev" in summary(str(tmp_path))
    (tmp_path / "g++").write_text("#!/bin/sh\nexit 0\n")
    assert "missing" not in summary(str(tmp_path)).replace("test_missing", "")
