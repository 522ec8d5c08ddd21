"""Linux guest in QEMU: its network card is a port, and the peer program on it is controlled over the console."""

import collections
import contextlib
import select
import socket
import subprocess
import time

from weft.driver.soft.ports import QemuSocketPort
from weft.tb.sim.flow.failure import Failure
from weft.tb.sim.flow.tools import need

from .image import image

QEMU = "qemu-system-x86_64"
MAC, IP = 0x52_54_00_12_34_56, 0x0A_00_00_0B
BOOT_S, ANSWER_S = 600, 300     # for a machine under load
GATEWAY = "10.0.2.2"        # this host, over the guest's second card


class GuestFailed(Failure):
    """The guest failed. The message contains the reason."""


def _free_number():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start():
    """Start QEMU; return the process and the TCP ports of the guest's first network card and of its console.

    KVM is not used, so that the guest runs on every host of QEMU. The guest's clock is real time. Raises MissingTool,
    NoPackage or NoImage if something is missing.
    """
    need(QEMU, "qemu-system-x86")
    kernel, initrd = image()
    mac, numbers = ":".join(f"{byte:02x}" for byte in MAC.to_bytes(6, "big")), (_free_number(), _free_number())
    return subprocess.Popen(
        [QEMU, "-accel", "tcg", "-cpu", "max", "-m", "256", "-kernel", kernel, "-initrd", initrd,
         "-append", "console=ttyS0 quiet loglevel=3 mitigations=off", "-display", "none",
         "-serial", f"tcp:127.0.0.1:{numbers[1]},server=on,wait=on", "-monitor", "none", "-no-reboot", "-nic", "none",
         "-netdev", f"socket,id=n0,listen=127.0.0.1:{numbers[0]}", "-device", f"e1000,netdev=n0,mac={mac},romfile=",
         "-netdev", "user,id=n1", "-device", "e1000,netdev=n1,romfile="],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True), numbers


class Guest:
    """Connection to a guest, held by one program at a time.

    ``numbers`` are the TCP ports from :func:`start`, and ``process`` is QEMU, if this program started it. ``port`` is
    the port of the guest's first network card; ``output`` has the lines that the guest printed to its console.
    """

    def __init__(self, numbers, process=None):
        self.numbers, self._process = numbers, process
        self.output, self._answers, self._part = [], collections.deque(), b""
        self.take()

    def take(self):
        """Connect to network card and console (again)."""
        self._console = self._connect(lambda: socket.create_connection(("127.0.0.1", self.numbers[1])))
        self._console.setblocking(False)
        self.take_port()

    def release(self):
        """Disconnect, so that another program can use both until :meth:`take`."""
        self._console.close()
        self.port.close()

    def take_port(self):
        """Connect to the network card (again)."""
        self.port = self._connect(lambda: QemuSocketPort.connect("127.0.0.1", self.numbers[0]))

    def _connect(self, how):
        for _ in range(400):
            with contextlib.suppress(OSError):
                return how()
            if self._ended:
                break
            time.sleep(0.05)
        lines = self._process.communicate()[0].strip() if self._ended else "nothing"
        raise GuestFailed(f"{QEMU} cannot be reached; its output is {lines}")

    @property
    def _ended(self):
        return self._process is not None and self._process.poll() is not None

    def fileno(self):
        """Return the file descriptor of the console, for ``select``."""
        return self._console.fileno()

    def listen(self):
        """Read the console."""
        with contextlib.suppress(BlockingIOError):
            self._part += self._console.recv(1 << 16)
        *lines, self._part = self._part.split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").strip()
            self.output.append(text)
            if text.startswith("= "):
                self._answers.append(text[2:])

    def add_line(self, line):
        """Send an order."""
        self._console.sendall(line.encode() + b"\n")

    def answer(self, step, seconds=ANSWER_S):
        """Return the next answer; until then, call ``step()``, which advances the rest of the case for a moment."""
        end = time.monotonic() + seconds
        while not self._answers:
            step()
            self.listen()
            if self._ended or time.monotonic() > end:
                raise GuestFailed("the guest is silent; its last lines: " + " | ".join(self.output[-6:]))
        answer = self._answers.popleft()
        if answer.startswith("failed"):
            raise GuestFailed(f"the guest: {answer}; its last words: " + " | ".join(self.output[-6:]))
        return answer

    def ask(self, step, line, seconds=ANSWER_S):
        """Send an order; return the answer."""
        self.add_line(line)
        return self.answer(step, seconds)

    def boot(self):
        """Wait until the peer program is ready."""
        def wait():
            self.port.receive()     # frames before the connection are discarded
            select.select([self, self.port], [], [], 0.1)
        assert self.answer(wait, BOOT_S) == "ready", self.output

    def close(self):
        """Disconnect, and end QEMU if this program started it."""
        self.release()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def booted():
    """Start a guest, wait until it is ready, and return it."""
    process, numbers = start()
    with contextlib.ExitStack() as failed:
        failed.callback(process.communicate)
        failed.callback(process.kill)
        guest = Guest(numbers, process)
        guest.boot()
        failed.pop_all()
    return guest
