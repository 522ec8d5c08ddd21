"""Linux guest with cards: QEMU, and the jobs that its agent runs."""

import collections
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from weft.tb.sim.flow.failure import Failure

BOOT_S, ANSWER_S = 600, 300     # on a host under load
# On a loaded host the kernel's check that the timer interrupts in time may fail, and Linux panics.
KERNEL = "console=ttyS0 quiet mitigations=off panic=-1 no_timer_check"
TAIL = 3000                     # characters of a console in a message


class GuestFailed(Failure):
    """The guest or a program on it failed. The message contains the reason."""


def check(condition, sentence):
    """Raise GuestFailed with a sentence unless the condition is true."""
    if not condition:
        raise GuestFailed(sentence)


class Job:
    """Program on a guest.

    Attributes
    ----------
    status : int or None
        Of :func:`os.waitpid`, after its end.
    """

    def __init__(self, guest, number, what):
        self._guest, self._number, self._what = guest, number, what
        self._values, self.status = collections.deque(), None

    def __str__(self):
        state = "runs" if self.status is None else f"ended with status {self.status}"
        return f"{self._what} {state}, values {list(self._values)}"

    def take(self, report):
        """Process a report of the agent."""
        if "status" in report:
            self.status = report["status"]
        else:
            self._values.append(report["output"])

    def get(self):
        """Wait for the next value that the program puts out.

        Raises
        ------
        GuestFailed
            If the program ends first.
        """
        self._guest.wait_for(lambda: self._values or self.status is not None, self._what)
        if not self._values:
            raise GuestFailed(f"{self._what} ended with status {self.status} and put out nothing more")
        value = self._values.popleft()
        if isinstance(value, str) and value.startswith("Traceback"):
            raise GuestFailed(f"{self._what}: {value}")
        return value

    def put(self, value):
        """Give a value to the program."""
        self._guest.order(job=self._number, input=value)

    def result(self):
        """Return the value that the program puts out before it ends without an error."""
        value = self.get()
        self.end()
        return value

    def end(self):
        """Wait for the end of the program, without an error."""
        self._guest.wait_for(lambda: self.status is not None, f"the end of {self._what}")
        if self.status:
            raise GuestFailed(f"{self._what} ended with status {self.status}: {list(self._values)}")

    def interrupt(self):
        """Send SIGINT to the program."""
        self._guest.order(job=self._number, signal=int(signal.SIGINT))

    def kill(self):
        """Kill the program, and wait for its end."""
        self._guest.order(job=self._number, signal=int(signal.SIGKILL))
        self._guest.wait_for(lambda: self.status is not None, f"the end of {self._what}")
        if self.status != signal.SIGKILL:
            raise GuestFailed(f"{self._what} ended with status {self.status} before it was killed")


class Guest:
    """Running guest. Ends with the context.

    Parameters
    ----------
    command : callable(console, port) -> list of str
        Returns the command of QEMU, whose second serial port is the socket ``port``.
    folder : Path
        For the console and the socket.
    name : str
    iommu : bool
        Its cards have an IOMMU.
    """

    def __init__(self, command, folder, name, *, iommu=True):
        self.name, self.iommu = name, iommu
        self._console, path = folder / f"{name}.console", folder / f"{name}.port"
        for each in (self._console, path):
            each.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._jobs, self._news, self.ended, self.boot_s, self.kernel_s = {}, threading.Condition(), "", None, None
        self._start = time.monotonic()
        self.process = subprocess.Popen(command(self._console, path), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            self._port = self._connected()
        except BaseException:       # an interrupt from the keyboard as well
            self.process.kill()
            self.process.wait()
            self._listener.close()
            raise
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _connected(self):
        """Wait until QEMU connects its serial port, which it does when it starts."""
        self._listener.settimeout(0.5)
        while self.process.poll() is None and time.monotonic() < self._start + BOOT_S:
            with contextlib.suppress(TimeoutError):
                return self._listener.accept()[0]
        self.process.kill()
        output, _ = self.process.communicate()
        raise GuestFailed(f"QEMU of guest {self.name} does not start: {output[-TAIL:]}")

    def _read(self):
        with self._port.makefile() as lines:
            for line in lines:
                with self._news:
                    self._take(line)
                    self._news.notify_all()
        with self._news:
            self.ended = "the guest has ended"
            self._news.notify_all()

    def _take(self, line):
        try:
            report = json.loads(line)
        except ValueError:
            self.ended = f"no report: {line!r}"
            return
        if "ready" in report:
            self.boot_s, self.kernel_s = time.monotonic() - self._start, report["ready"]
        elif report["job"] in self._jobs:
            self._jobs[report["job"]].take(report)

    @property
    def console(self):
        """End of what the kernel and init printed."""
        return self._console.read_text(errors="replace")[-TAIL:] if self._console.exists() else ""

    def wait_for(self, condition, what, seconds=None):
        """Wait until a condition is true.

        Raises
        ------
        GuestFailed
            If the guest ends first, or after ``seconds``, by default :data:`ANSWER_S`.
        """
        seconds = ANSWER_S if seconds is None else seconds
        with self._news:
            self._news.wait_for(lambda: condition() or self.ended, seconds)
            if not condition():
                raise GuestFailed(f"guest {self.name}: no {what} ({self.ended or f'within {seconds} s'}); "
                                  f"console: {self.console}")

    def booted(self):
        """Wait until the agent is ready."""
        self.wait_for(lambda: self.boot_s is not None, "agent", BOOT_S)

    def order(self, **order):
        """Send an order to the agent.

        Raises
        ------
        GuestFailed
            If the guest has ended.
        """
        try:
            self._port.sendall(json.dumps(order).encode() + b"\n")
        except OSError as error:
            raise GuestFailed(f"guest {self.name} takes no order: {error.strerror}; console: {self.console}") from None

    def start(self, program, **arguments):
        """Start a program of :mod:`weft.tb.verify.linux.guest_programs`, or one of another module, by both names."""
        number = len(self._jobs) + 1
        job = self._jobs[number] = Job(self, number, f"{program} on guest {self.name}")
        self.order(job=number, program=program, arguments=arguments)
        return job

    def run(self, program, **arguments):
        """Run a program to its end, and return the value that it puts out."""
        return self.start(program, **arguments).result()

    def kill_jobs(self):
        """Kill the programs that run."""
        for job in self._jobs.values():
            if job.status is None:
                with contextlib.suppress(GuestFailed):      # it may end by itself
                    job.kill()

    def shut_down(self):
        """End the guest, and wait for its end.

        Raises
        ------
        GuestFailed
            If it does not end, or QEMU ends with an error.
        """
        self.order(end=True)
        try:
            output, _ = self.process.communicate(timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            raise GuestFailed(f"guest {self.name} has not ended within {ANSWER_S} s; "
                              f"console: {self.console}") from None
        if self.process.returncode:
            raise GuestFailed(f"QEMU of guest {self.name} ended with status {self.process.returncode}: {output}")

    def close(self):
        """End the guest, at once if it runs."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._port.close()
        self._listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def command_of(qemu, kernel, initrd, cards, *, iommu=True):
    """Return a function for :class:`Guest`.

    Parameters
    ----------
    qemu : list of str
    kernel, initrd : Path
    cards : iterable of path
        Sockets of its cards.
    iommu : bool
        The machine has an IOMMU.
    """
    unit = ("-device", "intel-iommu,caching-mode=on") if iommu else ()
    devices = [json.dumps({"driver": "vfio-user-pci", "socket": {"type": "unix", "path": os.fspath(card)},
                           "x-msg-timeout": 600_000}) for card in cards]

    def command(console: Path, port: Path):
        return [
            *qemu, "-accel", "tcg", "-cpu", "max", "-m", "512", "-machine", "q35,memory-backend=m",
            "-object", "memory-backend-memfd,id=m,size=512M,share=on", *unit,
            "-nodefaults", "-nic", "none", "-display", "none", "-no-reboot", "-monitor", "none",
            "-serial", f"file:{console}", "-serial", f"unix:{port}", "-kernel", str(kernel), "-initrd", str(initrd),
            "-append", KERNEL + " intel_iommu=on" * iommu,
            *(word for device in devices for word in ("-device", device))]

    return command
