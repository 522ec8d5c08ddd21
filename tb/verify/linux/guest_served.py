"""Programs of a Linux guest with two cards: the daemon, unmodified RDMA programs on its hosts, and the device tools.

Daemon and tools run without the command line, which needs packages that the guest does not have.
"""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from weft.driver.pci.sysfs import cards
from weft.tb.app.device import counters, devinfo, hardware
from weft.tb.app.serve.served import serve_here
from weft.tb.app.serve.settings import Settings

FOLDER, LIBRARIES = Path("/tmp/hosts"), "/weft/build/ibverbs"
BUSYBOX = "/bin/busybox"
HOSTS, DELAY_US = ("a", "b"), 10_000
COMMAND_TIMEOUT_MS, RTT_US = 100_000, 100_000      # of a guest whose host is loaded
LISTENS = ":4853 ", " 0A "      # in /proc/net/tcp: port 18515, of perftest and the examples
TICK_S, TRIES, TRY_S = 0.05, 20, 0.1
OTHER_USER = 1000
COMPLAINT = re.compile("DMAR.*fault|AER:|segfault|vfio.*(warn|err|fail)")


def addresses():
    """Return the addresses of the cards."""
    return [function.address for function in cards()]


def tools(job):
    """Put out what ``weft devinfo -v`` and ``weft counters`` show with ``--device`` and the address of both cards."""
    patient = {"command_timeout_ns": COMMAND_TIMEOUT_MS * 1_000_000}
    found = hardware.devinfos(addresses(), **patient)
    counted = hardware.counters(addresses(), messages=5, rtt_us=RTT_US, **patient)
    job.put({"devinfo": [devinfo.text(one, verbose=True) for one in found],
             "counters": counted, "shown": [counters.text("weft0", one) for one in counted]})


def serve(job):
    """Serve both cards as ``weft serve --backend pci --device ADDRESSES`` until SIGINT; put out its sentences."""
    ended = []
    signal.signal(signal.SIGINT, lambda *_: ended.append(True))
    subprocess.run([BUSYBOX, "ifconfig", "lo", "up"], check=True)
    os.umask(0)         # another user's program reaches the daemon, which refuses it
    serve_here(Settings(backend="pci", device=addresses(), hosts=HOSTS, delay_us=DELAY_US,
                        command_timeout_ms=COMMAND_TIMEOUT_MS, folder=str(FOLDER)), job.put, ended)


class OnHost:
    """Unmodified program on a host, whose output is kept."""

    def __init__(self, host, *command, **options):
        environment = {"WEFT_SOCKET": str(FOLDER / f"{host}.sock"), "LD_LIBRARY_PATH": LIBRARIES,
                       "LD_PRELOAD": "libweft-preload.so", "WEFT_LOG": "1"}
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env=os.environ | environment, **options)

    @property
    def runs(self):
        return self.process.poll() is None

    def end(self):
        """Wait for its end, and return its output and its status."""
        output, _ = self.process.communicate()
        return {"output": output, "status": self.process.returncode}


def listening():
    """Return true if a program listens at the TCP port of perftest."""
    return any(all(word in line for word in LISTENS)
               for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines())


def started(command):
    """Start a program on host b, and when it listens, its other end on host a: they meet over TCP."""
    server = OnHost("b", *command)
    while server.runs and not listening():
        time.sleep(TICK_S)
    return OnHost("a", *command, "127.0.0.1"), server


def pair(job, command):
    """Run both ends of a program; put out what both end with."""
    start = time.monotonic()
    ends = [each.end() for each in started(command)]
    job.put({"ends": ends, "seconds": time.monotonic() - start})


def rping(job, count):
    """Run both ends of ``rping``; the client is started again until the server listens."""
    words, start = ("-C", str(count), "-v"), time.monotonic()
    server = OnHost("b", "rping", "-s", *words)
    for _ in range(TRIES):
        client = OnHost("a", "rping", "-c", "-a", "10.0.0.2", *words).end()
        if not client["status"] or not server.runs:
            break
        time.sleep(TRY_S)
    else:
        server.process.kill()
    job.put({"ends": [client, server.end()], "seconds": time.monotonic() - start})


def killed(job, command):
    """Kill both ends of a program when the job gives a value."""
    ends = started(command)
    job.put({"runs": [each.runs for each in ends]})
    job.get()
    for each in ends:
        each.process.kill()
    job.put({"ends": [each.end() for each in ends]})


def complaints(job):
    """Put out the kernel's complaints about cards and programs."""
    log = subprocess.run([BUSYBOX, "dmesg"], capture_output=True, text=True).stdout
    job.put([line for line in log.splitlines() if COMPLAINT.search(line)])


def refused(job, command):
    """Run a program of another user on host a."""
    job.put(OnHost("a", *command, user=OTHER_USER).end())
