"""A Linux guest in QEMU: its network card is a port, and its peer is spoken to over the console."""

import collections
import contextlib
import select
import shutil
import socket
import subprocess
import time

from weft.driver.soft.ports.qemu_socket import QemuSocketPort
from weft.tb.sim.flow.failure import Failure

from .image import image

QEMU = "qemu-system-x86_64"
MAC, IP = 0x52_54_00_12_34_56, 0x0A_00_00_0B
BOOT_S, ANSWER_S = 600, 300     # of a machine that has much else to do
GATEWAY = "10.0.2.2"        # this machine, over the guest's second card


class GuestFailed(Failure):
    """The guest did not do what it should. The message says what."""


class NoQemu(Failure):
    """QEMU is not installed."""


def _free_number():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start():
    """QEMU, and the numbers of the TCP ports that the guest's first network card and its console are at. No KVM: it
    runs wherever QEMU does, and its clock is real time.

    Raises
    ------
    NoQemu, NoPackage, NoImage
    """
    if shutil.which(QEMU) is None:
        raise NoQemu(f"{QEMU} is not installed; on Debian: apt-get install qemu-system-x86")
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
    """What one program has of a guest at a time.

    Parameters
    ----------
    numbers : (int, int)
        Of :func:`start`.
    process : subprocess.Popen or None
        QEMU, for whoever started it: it ends with this.

    Attributes
    ----------
    port : QemuSocketPort
        Of its first network card.
    told : list of str
        What its console said.
    """

    def __init__(self, numbers, process=None):
        self.numbers, self._process = numbers, process
        self.told, self._answers, self._part = [], collections.deque(), b""
        self.take()

    def take(self):
        """Have network card and console (again)."""
        self._console = self._connect(lambda: socket.create_connection(("127.0.0.1", self.numbers[1])))
        self._console.setblocking(False)
        self.port = self._connect(lambda: QemuSocketPort.connect("127.0.0.1", self.numbers[0]))

    def release(self):
        """Let another program have both until :meth:`take`."""
        self._console.close()
        self.port.close()

    def release_port(self):
        """Let another program have the network card alone, until :meth:`take_port`; its TCP port."""
        self.port.close()
        return self.numbers[0]

    def take_port(self):
        """Have it again."""
        self.port = self._connect(lambda: QemuSocketPort.connect("127.0.0.1", self.numbers[0]))

    def _connect(self, how):
        for _ in range(400):
            with contextlib.suppress(OSError):
                return how()
            if self._ended:
                break
            time.sleep(0.05)
        said = self._process.communicate()[0].strip() if self._ended else "nothing"
        raise GuestFailed(f"{QEMU} cannot be reached; it says {said}")

    @property
    def _ended(self):
        return self._process is not None and self._process.poll() is not None

    def fileno(self):
        """Of the console, for ``select``."""
        return self._console.fileno()

    def listen(self):
        """Take what the console says."""
        with contextlib.suppress(BlockingIOError):
            self._part += self._console.recv(1 << 16)
        *lines, self._part = self._part.split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").strip()
            self.told.append(text)
            if text.startswith("= "):
                self._answers.append(text[2:])

    def tell(self, line):
        """Give an order."""
        self._console.sendall(line.encode() + b"\n")

    def answer(self, step, seconds=ANSWER_S):
        """The next answer; meanwhile ``step()`` lets the rest of the world go on, for a moment each time."""
        end = time.monotonic() + seconds
        while not self._answers:
            step()
            self.listen()
            if self._ended or time.monotonic() > end:
                raise GuestFailed("the guest says nothing; its last words: " + " | ".join(self.told[-6:]))
        answer = self._answers.popleft()
        if answer.startswith("failed"):
            raise GuestFailed(f"the guest: {answer}; its last words: " + " | ".join(self.told[-6:]))
        return answer

    def ask(self, step, line, seconds=ANSWER_S):
        """Give an order; the answer."""
        self.tell(line)
        return self.answer(step, seconds)

    def boot(self):
        """Wait until the peer is ready."""
        def wait():
            self.port.receive()     # nobody is there yet
            select.select([self, self.port], [], [], 0.1)
        assert self.answer(wait, BOOT_S) == "ready", self.told

    def close(self):
        """Leave it; whoever started it switches it off."""
        self.release()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def booted():
    """A guest that is ready."""
    process, numbers = start()
    try:
        guest = Guest(numbers, process)
        guest.boot()
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return guest
