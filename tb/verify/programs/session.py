"""Process that runs `weft serve`, and programs on its hosts."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from weft.driver.cm.enums import PortSpace
from weft.tb.app.serve import listening
from weft.tb.app.serve.environment import environment_of

LOOK_S, END_S, START_S, BUILD_S = 0.02, 5, 60, 3600      # BUILD_S: until a simulator of the RTL is built and started
DAEMON_END_S = 120      # it writes files when it ends


class CannotServe(Exception):
    """The daemon did not start; the message is a sentence, or the daemon's output."""


@dataclass
class Ended:
    """End of a program: ``status`` is its exit status, or None if it was killed after the time limit."""

    status: int | None
    output: str


class Session:
    """Running daemon."""

    def __init__(self, process, folder, printed):
        self.process, self._folder, self._output_file = process, folder, printed

    def end(self):
        """End the daemon; return its output, which ends with a summary of frames."""
        _ended_daemon(self.process)
        return self._output_file.read_text()

    def socket(self, host):
        """Return the path of a host's socket."""
        return self._folder / f"{host}.sock"

    def start(self, host, *command, **environment):
        """Start a program on a host; return its Popen, with the output in a pipe."""
        return _started(command, environment_of(self.socket(host)) | environment)

    def start_in_network(self, host, *command):
        """Start a program on a host, in the network of the hosts; return its Popen."""
        return self.start_plainly(*self.weft_run(), "--network", "--host", host, "--", *command)

    @staticmethod
    def start_plainly(*command):
        """Start a program outside the hosts, such as ``weft run``; return its Popen."""
        return _started(command, os.environ)

    def weft_run(self):
        """Return the command ``weft run`` for this daemon."""
        return sys.executable, "-m", "weft.tb.cli", "run", "--folder", str(self._folder)

    def run(self, host, *command, limit_s=60, **environment):
        """Run a program on a host; return its :class:`Ended`."""
        return ended(self.start(host, *command, **environment), limit_s)

    def run_pair(self, server, client, *, port, on_card=False, space=PortSpace.TCP, network=False, endless=False,
                 limit_s=120):
        """Run a server on host b and a client on host a; return the :class:`Ended` of both.

        The client starts when the server listens at the TCP port, or at that of its card in a port space; without a
        ``port``, at once. A server that is ``endless`` is ended after its client, and successful if it runs until then.
        """
        start = self.start_in_network if network else self.start
        first = start("b", *server)
        limit = time.monotonic() + limit_s
        try:
            while (port and first.poll() is None and time.monotonic() < limit
                   and not self._listens(port, on_card, space, network)):
                time.sleep(LOOK_S)
            of_client = ended(start("a", *client), limit - time.monotonic(), server=first)
        except BaseException:
            stopped(first)
            raise
        if endless and first.poll() is None:
            return replace(_terminated(first), status=0), of_client
        return ended(first, max(1, limit - time.monotonic()) if of_client.status == 0 else 1), of_client

    def _listens(self, port, on_card, space, network):
        if on_card:
            return listening.at_card(self.socket("b"), port, space)
        return listening.at_tcp(port, self._holder() if network else "self")

    def _holder(self):
        """Return the ID of the process that holds the network of the hosts, as text."""
        note = self._folder / "network"
        return note.exists() and note.read_text() or "self"


def _started(command, environment):
    """Start a program as leader of a new process group; return its Popen."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env=environment | {"LD_BIND_NOW": "1"}, text=True, process_group=0)


def ended(process, limit_s, server=None):
    """Wait for a process, and kill its group after ``limit_s`` seconds; return its :class:`Ended`.

    A process whose ``server`` fails has END_S to 2 END_S seconds left. A program such as fio starts others, which keep
    the pipe open.
    """
    limit = time.monotonic() + max(0.1, limit_s)
    try:
        while True:
            left_s = max(0, limit - time.monotonic())
            try:
                output, _ = process.communicate(timeout=min(left_s, END_S))
                return Ended(process.returncode, output)
            except subprocess.TimeoutExpired:
                if left_s <= END_S:
                    return Ended(None, stopped(process))
            if server is not None and server.poll():
                limit = min(limit, time.monotonic() + END_S)
    except KeyboardInterrupt:      # the terminal interrupts this process only
        stopped(process)
        raise


def stopped(process):
    """Terminate a process with its group, and kill what is left of the group; return its output.

    A launcher such as mpirun ends its ranks, which are in separate groups, if it is terminated.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=END_S)[0]
    return ""       # a process outside the group holds the pipe


def _terminated(process):
    """Terminate a process, or kill it if that does not end it; return its :class:`Ended`."""
    os.killpg(process.pid, signal.SIGTERM)
    return ended(process, END_S)


@contextlib.contextmanager
def serving(*options):
    """Yield a :class:`Session` of `weft serve` with ``options``, or raise :class:`CannotServe`."""
    limit_s = BUILD_S if "rtl" in options else START_S
    with tempfile.TemporaryDirectory(prefix="weft-serve-") as folder:
        printed = Path(folder, "said")
        with printed.open("w") as out:
            process = subprocess.Popen([sys.executable, "-m", "weft.tb.cli", "serve", "--folder", folder, *options],
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            limit = time.monotonic() + limit_s
            while "weft run" not in printed.read_text():
                if process.poll() is not None or time.monotonic() > limit:
                    raise CannotServe(_why_not(process, printed.read_text(), limit_s))
                time.sleep(LOOK_S)
            yield (session := Session(process, Path(folder), printed))
            session.end()
        finally:
            _ended_daemon(process)


def _ended_daemon(process):
    """Terminate the daemon, and kill it if that does not end it."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout=DAEMON_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _why_not(process, output, limit_s):
    """Return why the daemon has not started, with its output."""
    if process.poll() is None:
        return f"weft serve has not started within {limit_s} s; is the machine busy? Try again.\n{output}".rstrip()
    return output or f"weft serve ended with status {process.returncode} and no message"
