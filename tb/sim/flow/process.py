"""Child processes, such as compilers and simulators, that never outlive their parent."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

GUARD = Path(__file__).with_name("guard.py")


def run(command, *, cwd, environment=None, out=None, timeout_s=None):
    """Run a command to its end in a new session, under :mod:`weft.tb.sim.flow.guard`.

    If this process ends or is interrupted, everything that the command has started ends too. ``environment`` is
    complete, and file ``out`` receives standard output and error; both are by default those of this process.

    Returns
    -------
    int or None
        Exit status; 128 plus the signal number if a signal ended the command; None after ``timeout_s``.
    """
    lifeline, held = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), str(lifeline), *map(str, command)], cwd=cwd, env=environment,
            stdin=subprocess.DEVNULL, stdout=out, stderr=None if out is None else subprocess.STDOUT,
            pass_fds=[lifeline], start_new_session=True)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.returncode is None or process.returncode < 0:  # negative: the guard alone was killed
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    finally:
        os.close(lifeline)
        os.close(held)


def output_of(command, *, cwd, environment=None, timeout_s=None):
    """Run a command as :func:`run` does; return its exit status, and its standard output and error as text."""
    with tempfile.TemporaryFile() as out:
        status = run(command, cwd=cwd, environment=environment, out=out, timeout_s=timeout_s)
        out.seek(0)
        return status, out.read().decode(errors="replace")


def cpu_seconds():
    """Return the CPU time of this process and of its finished children."""
    spent = [resource.getrusage(owner) for owner in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)
