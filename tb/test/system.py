"""Programs that no Python package provides: tests that need one are skipped without it, and a run names them."""

import shutil

import pytest

from weft.tb.sim.flow.tools import missing_headers, tools_expected

# {name: (consequence of its absence, Debian package)}
PROGRAMS = {
    "iverilog": ("every bench that runs under Icarus too is skipped there", "iverilog"),
    "tshark": ("no capture is read by an independent dissector", "tshark"),
    "qemu-system-x86_64": ("no Linux guest talks to the endpoint in software and to the card", "qemu-system-x86"),
    "chromium": ("no browser opens the page of weft report", "chromium"),
    "ib_write_bw": ("no program of perftest runs on served cards", "perftest"),
    "ibv_devices": ("no program of libibverbs runs on served cards", "ibverbs-utils"),
    "ibv_rc_pingpong": ("no program of libibverbs runs on served cards", "ibverbs-utils"),
    "rping": ("no program connects by librdmacm", "rdmacm-utils"),
    "fio": ("the commands of docs/programs.md do not run", "fio"),
    "mpicc.mpich": ("the commands of docs/programs.md do not run", "libmpich-dev"),
}


def missing():
    """Return the programs and headers that this system lacks: ``{name: (consequence, package)}``."""
    lacking = {name: hint for name, hint in PROGRAMS.items() if shutil.which(name) is None}
    return lacking | (missing_headers() if shutil.which("g++") else {})


def absence(program):
    """Return a sentence that names the missing program and its package."""
    return f"{program} is not installed; on Debian: apt-get install {PROGRAMS[program][1]}"


def need(program):
    """Skip the running test if ``program``, one of :data:`PROGRAMS`, is missing; under ``CI=true`` fail instead."""
    if shutil.which(program):
        return
    if tools_expected():
        raise AssertionError(absence(program))
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
