"""Shared parts of both simulators: programs, build commands with a log, and the Python inside the simulation."""

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
import sys

from weft.tb.sim.flow import process
from weft.tb.sim.flow.failure import Failure

# Settings of cocotb that affect the amount of output, but not the run.
TELLING = {"COCOTB_LOG_LEVEL", "COCOTB_LOG_PREFIX", "COCOTB_REDUCED_LOG_FMT", "GPI_LOG_LEVEL"}
# Prefixes and names of the other variables that cocotb reads.
STEERING = ("COCOTB_", "GPI_", "PYGPI_")
STEERING_NAMES = {"COVERAGE", "COVERAGE_RCFILE", "RANDOM_SEED"}
# {name: (consequence of its absence, Debian package)}
HEADERS = {
    "lz4.h": ("waves are written as VCD, not FST", "liblz4-dev"),
    "zlib.h": ("waves are written as VCD, not FST", "zlib1g-dev"),
}


class MissingTool(Failure):
    """A program or Python package is not installed. The message names the package to install."""


class BuildFailed(Exception):
    """A build command failed."""


@contextlib.contextmanager
def locked(path):
    """Hold the lock file ``path``; other processes that lock it wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_whole(path, text):
    """Write a file; a reader or an interrupted run finds the old text or the new one, not a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def need(program, package):
    """Raise :class:`MissingTool` unless ``program`` is installed."""
    if shutil.which(program) is None:
        raise MissingTool(f"{program} is not installed; on Debian: apt-get install {package}")


def build_commands(commands, where, log, environment=None):
    """Run commands in folder ``where`` with output to file ``log``; raise :class:`BuildFailed` if one fails."""
    with open(log, "a", encoding="utf-8", errors="surrogateescape") as out:
        for command in commands:
            out.write(" ".join(map(str, command)) + "\n")
            out.flush()
            status = process.run(command, cwd=where, out=out, environment={**os.environ, **(environment or {})})
            if status:
                raise BuildFailed(f"{os.path.basename(command[0])} ended with status {status}")


def surroundings():
    """Return the environment without variables that control cocotb, so that the command alone determines the run."""
    return {name: value for name, value in os.environ.items()
            if name in TELLING or not (name.startswith(STEERING) or name in STEERING_NAMES)}


@functools.cache
def cocotb_environment():
    """Return the environment in which cocotb finds this Python interpreter inside the simulator."""
    import cocotb_tools.config as config
    import find_libpython

    libpython = find_libpython.find_libpython()
    if libpython is None:
        raise MissingTool("cocotb needs Python's shared library; on Debian: apt-get install libpython3-dev")
    return {
        "GPI_USERS": f"{libpython};{config.pygpi_entry_point()}",
        "PYGPI_PYTHON_BIN": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PATH": os.environ["PATH"] + os.pathsep + str(config.libs_dir),
    }


def missing_headers():
    """Return the headers that the compiler does not find, in the form of :data:`HEADERS`."""
    return {name: hint for name, hint in HEADERS.items() if subprocess.run(
        ["g++", "-E", "-x", "c++", "-include", name, os.devnull], capture_output=True).returncode}


def tools_expected():
    """Return whether ``CI=true`` is set: then a missing tool is a failure, not a skip."""
    return os.environ.get("CI", "").lower() in ("true", "1")
