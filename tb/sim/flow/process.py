"""Programs that are started here, compilers and simulators, and that never outlive who started them."""

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
    """Run a command to its end, in a session of its own, below :mod:`weft.tb.sim.flow.guard`.

    When this process ends meanwhile, or is interrupted, everything the command started ends too.

    Parameters
    ----------
    command : list
        Program and arguments.
    cwd : path
    environment : dict, optional
        All of it; otherwise that of this process.
    out : file, optional
        Where output and errors go; otherwise where those of this process go.
    timeout_s : float, optional

    Returns
    -------
    int or None
        Exit status, 128 and the signal's number if one ended it; None if it did not end in time.
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
            if process.returncode is None or process.returncode < 0:  # or somebody killed the guard alone
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    finally:
        os.close(lifeline)
        os.close(held)


def hear_interrupts():
    """For a child before it begins (``preexec_fn``): what a shell starts in the background ignores SIGINT, and would
    hand that on.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def output_of(command, *, cwd, environment=None, timeout_s=None):
    """Run a command as :func:`run` does; its exit status, and what it says on standard output and error."""
    with tempfile.TemporaryFile() as out:
        status = run(command, cwd=cwd, environment=environment, out=out, timeout_s=timeout_s)
        out.seek(0)
        return status, out.read().decode(errors="replace")


def cpu_seconds():
    """CPU time of this process and of the commands that it has run to their end."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)
