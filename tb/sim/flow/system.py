"""Programs and headers that no Python package provides, and the consequences for the tests if they are missing."""

import os
import shutil
import subprocess

# {name: (consequence of its absence, Debian package)}
PROGRAMS = {
    "iverilog": ("every bench that runs under Icarus too is skipped there", "iverilog"),
    "tshark": ("no capture is read by an independent dissector", "tshark"),
    "qemu-system-x86_64": ("no Linux guest talks to the endpoint in software and to the card", "qemu-system-x86"),
    "chromium": ("no browser opens the page of weft report", "chromium"),
}
HEADERS = {
    "lz4.h": ("waves are written as VCD, not FST", "liblz4-dev"),
    "zlib.h": ("waves are written as VCD, not FST", "zlib1g-dev"),
}


def missing():
    """Return the programs and headers that this system lacks: ``{name: (consequence, package)}``."""
    lacking = {name: hint for name, hint in PROGRAMS.items() if shutil.which(name) is None}
    return lacking | (missing_headers() if shutil.which("g++") else {})


def missing_headers():
    """Return the headers that the compiler does not find, in the form of :func:`missing`."""
    return {name: hint for name, hint in HEADERS.items() if subprocess.run(
        ["g++", "-E", "-x", "c++", "-include", name, os.devnull], capture_output=True).returncode}


def tools_expected():
    """Return whether ``CI=true`` is set: then a missing tool is a failure, not a skip."""
    return os.environ.get("CI", "").lower() in ("true", "1")


def absence(program):
    """Return a sentence that names the missing program and its package."""
    return f"{program} is not installed; on Debian: apt-get install {PROGRAMS[program][1]}"


def need(program):
    """Skip the running test if ``program``, one of :data:`PROGRAMS`, is missing; under ``CI=true`` fail instead."""
    if shutil.which(program):
        return
    if tools_expected():
        raise AssertionError(absence(program))
    import pytest
    pytest.skip(absence(program))


def pytest_terminal_summary(terminalreporter):
    """Report what the system lacks, so that tests skipped for that reason are visible."""
    lacking = missing()
    if lacking:
        terminalreporter.section("missing from the system")
        for name, (consequence, _) in lacking.items():
            terminalreporter.write_line(f"{name}: {consequence}")
        packages = " ".join(dict.fromkeys(package for _, package in lacking.values()))
        terminalreporter.write_line(f"on Debian: apt-get install {packages}")
