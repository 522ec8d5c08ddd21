"""Programs of the Linux guest, which the agent runs: binding, examples on a card, measurements of a card."""

import contextlib
import importlib.util
import json
import os
import select
import subprocess
import time
from functools import partial
from pathlib import Path

from weft.driver.cm import qp_attributes
from weft.driver.cm.cmid import CMID
from weft.driver.connection.connection import ResponseTimeout
from weft.driver.pci.device import open_device
from weft.driver.pci.survey import survey
from weft.driver.pci.sysfs import SYSFS, cards
from weft.driver.queue.ring import CardToHostRing, HostToCardRing
from weft.driver.terms.enums import MTU, AccessFlag, SendFlags, WROpcode
from weft.driver.verbs.config import ContextConfig
from weft.driver.verbs.context import Context
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.device import add_device, remove_device
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPConnection, rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.hdl.contract import abi

HERE = Path("/weft")
MS = 1_000_000
# 34 s, so that a peer may be silent for 275 s: its driver answers, and a loaded host lets its processor wait for long.
ACK_TIMEOUT = 23
CM_TIMEOUT = 19         # 2.1 s, and for the same reason 15 retries
COMMAND_TIMEOUT_NS = 30_000 * MS
MAC, IP = 0x02_0000_0000_01, 0x0A00_0001      # of host 0
CHUNK = 64 * 1024
OUTSTANDING = 4
SERVE_NS = 1_000_000
VFIO = SYSFS / "bus/pci/drivers/vfio-pci"
LSPCI = ["lspci", "-d", f"{abi.PCI_VENDOR_ID:04x}:{abi.PCI_DEVICE_ID:04x}", "-vvv"]      # as in docs/hardware.md


class Job:
    """Connection of a program to the host that ordered it: values in and out, as lines of JSON."""

    def __init__(self, source, sink):
        self._source, self._sink, self._read = source, os.fdopen(sink, "w"), b""

    def put(self, value):
        self._sink.write(json.dumps(value) + "\n")
        self._sink.flush()

    def get(self, idle=lambda: time.sleep(0.01)):
        """Wait for a value, and call ``idle`` meanwhile."""
        while b"\n" not in self._read:
            if select.select([self._source], (), (), 0)[0]:
                self._read += os.read(self._source, 1 << 16)
            else:
                idle()
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)


class PatientQP(QP):
    """QP with large packets that waits longer for an answer."""

    def connect(self, peer):
        super().connect(peer, path_mtu=MTU.MTU_4096, timeout=ACK_TIMEOUT)


class PairHost:
    """Host of an example's program, as :class:`weft.tb.app.stage.host.Host`: the peer is reached through the job."""

    def __init__(self, job, context):
        self.job, self.context, self.times = job, context, []

    def send(self, *values):
        self.times.append(time.monotonic())
        self.job.put({"send": values})

    def receive(self):
        value = self.job.get(lambda: self.context.serve(SERVE_NS))
        self.times.append(time.monotonic())
        return value


def announced(job):
    """Return a CMID that reports when it listens."""
    class Announced(CMID):
        def listen(self, backlog=0):
            super().listen(backlog)
            job.put("listening")

    return Announced


def card():
    """Return the address of the first card."""
    return next(cards()).address


def example(name):
    """Return the module of an example."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def slow_down(device, factor):
    """Divide the driver's time, so that all its timers suit a card that is slower by this factor."""
    now, wait = device.now_ns, device.wait
    device.now_ns = lambda: now() // factor
    device.wait = lambda timeout_ns: wait(timeout_ns * factor)


class Opened:
    """Open card of host ``number`` on the list of devices.

    Parameters
    ----------
    polling : bool
        Use no interrupts.
    slow : int
        Factor of :func:`slow_down`.
    """

    def __init__(self, number, *, polling=False, slow=1):
        start = time.monotonic()
        qp_attributes.ACK_TIMEOUT = ACK_TIMEOUT
        self.device = open_device(card())
        slow_down(self.device, slow)
        if polling:
            self.device.enable_interrupts = lambda vectors: None
        config = ContextConfig(probe_timeout_ns=100 * MS, silence_ns=10_000 * MS, extent_bytes=1 << 16,
                               command_timeout_ns=COMMAND_TIMEOUT_NS,
                               cm_timeout=ResponseTimeout(response_timeout=CM_TIMEOUT))
        self.name = add_device(self.device, mac=MAC + number, ip=IP + number, config=config)
        self.context = Context(name=self.name)
        self.bring_up_s = time.monotonic() - start

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()
        remove_device(self.name)
        self.device.close()


# ------------------------------------------------------------------------------------------ the machine


def bind(job):
    """Bind the cards to vfio-pci; the survey names the step before, and none after it."""
    before = [str(found) for found in survey()]
    for function in cards():
        (function.path / "driver_override").write_text("vfio-pci")
        (SYSFS / "bus/pci/drivers_probe").write_text(function.address)
    job.put({"before": before, "after": [str(found) for found in survey()]})


def unbind(job):
    """Unbind the cards."""
    for function in cards():
        (VFIO / "unbind").write_text(function.address)
    job.put({"bound": [function.address for function in cards() if function.driver]})


def reserve(job, pages):
    """Reserve huge pages."""
    Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").write_text(str(pages))
    job.put({"survey": [str(found) for found in survey()]})


def space(job):
    """Return configuration space, decoding of lspci, and the kernel's complaints."""
    address = card()
    shown = subprocess.run([*LSPCI, "-s", address], capture_output=True, text=True)
    log = subprocess.run(["/bin/busybox", "dmesg"], capture_output=True, text=True).stdout.splitlines()
    job.put({"config": (SYSFS / "bus/pci/devices" / address / "config").read_bytes().hex(), "lspci": shown.stdout,
             "complaints": shown.stderr.splitlines(), "status": shown.returncode, "kernel": [
                 line for line in log if address in line or "DMAR" in line or "vfio" in line or "AER" in line]})


def pins(job):
    """Return the number of pages that the kernel keeps pinned."""
    with contextlib.suppress(OSError):      # an exact number: otherwise each processor adds its part once a second
        Path("/proc/sys/vm/stat_refresh").write_text("1")
    numbers = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    job.put({"pinned": int(numbers["nr_foll_pin_acquired"]) - int(numbers["nr_foll_pin_released"])})


# ------------------------------------------------------------------------------------------- on a card


def bring_up(job, number, slow=1):
    """Open the card, read its registers, reset it, open it again, and close it."""
    times = []
    for _ in range(2):
        with Opened(number, slow=slow) as opened:
            assert opened.device.read32(abi.REGISTER["magic"].offset) == abi.MAGIC
            times.append(opened.bring_up_s)
    job.put({"bring_up_s": times})


def ping_pong(job, number, peer=None, rounds=10, size=1024, polling=False, slow=1):
    """Run an end of the example: the client, if there is a peer."""
    module = example("ping_pong")
    address = f"10.0.0.{number + 1}"
    with Opened(number, polling=polling, slow=slow):
        if peer is None:
            module.CMID = announced(job)
            module.server(address)
            job.put({})
        else:
            times = module.client(address, f"10.0.0.{peer + 1}", rounds=rounds, size=size)
            job.put({"rounds_ns": times})


def file_copy(job, number, sends, size, huge=False, polling=False, slow=1):
    """Run an end of the example; with ``huge``, the memory consists of huge pages."""
    module = example("file_copy")
    module.QP = PatientQP
    if huge:
        module.MR = lambda pd, length, access: MR(pd, length, access | AccessFlag.HUGETLB)
    path = Path("/tmp/file")
    if sends:
        path.write_bytes(os.urandom(1 << 16) * (size >> 16) + os.urandom(size % (1 << 16)))
    with Opened(number, polling=polling, slow=slow) as opened:
        host = PairHost(job, opened.context)
        digest = (module.client if sends else module.server)(host, path)
        job.put({"digest": digest, "seconds": host.times[-1] - host.times[-2]})


def stream(job, number, sends, slow=1):
    """Write to the other end until this program is killed, or offer memory until the next value of the job."""
    with Opened(number, slow=slow) as opened, PD(opened.context) as pd, CQ(opened.context, 64) as cq:
        mr = MR(pd, 1 << 20, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE)
        qp = PatientQP(pd, rc_init_attr(cq, max_send_wr=OUTSTANDING, max_recv_wr=1))
        job.put({"send": [vars(qp.connection), mr.buf, mr.rkey]})
        serve = partial(opened.context.serve, SERVE_NS)
        peer, address, rkey = job.get(serve)
        qp.connect(QPConnection(**peer))
        job.put({"connected": True})
        if sends:
            write_for_ever(job, cq, qp, mr, (rkey, address))
        job.get(serve)
        job.put({})


def write_for_ever(job, cq, qp, mr, there):
    """Write, and report every 16 completions."""
    rkey, address = there
    outstanding = done = 0
    while True:
        while outstanding < OUTSTANDING:
            wr = SendWR(done, WROpcode.RDMA_WRITE, sg=[SGE(mr.buf, CHUNK, mr.lkey)], send_flags=SendFlags.SIGNALED)
            wr.set_wr_rdma(rkey, address)
            qp.post_send(wr)
            outstanding += 1
        completed = len(cq.wait(OUTSTANDING))
        outstanding, done = outstanding - completed, done + completed
        if done // 16 != (done - completed) // 16:
            job.put({"done": done})


# ------------------------------------------------------------------------------------------ measurements


def measure(job, repeats=200):
    """Measure accesses of registers, interrupts and the mapping of pages: microseconds, and pages per second."""
    device = open_device(card())
    register, cons = (abi.REGISTER[name].offset for name in ("magic", "response_cons"))
    device.enable_interrupts(max(abi.VECTOR.values()) + 1)
    rings = command, _ = HostToCardRing(device, abi.Ring.COMMAND, 4), CardToHostRing(device, abi.Ring.RESPONSE, 4)
    for ring in rings:
        ring.enable()
    command.push(abi.COMMAND.pack(opcode=abi.CommandOpcode.SET_NETWORK))
    command.ring_doorbell()

    def interrupt():
        # The response to the command is never consumed: an armed ring interrupts at once.
        device.write32(cons, 1 << abi.ARM_BIT)
        assert device.wait(10**10)

    def write():
        device.write32(abi.REGISTER["reorder_distance"].offset, 1)

    def read():
        device.read32(register)

    reads, both = timed(repeats, read), timed(repeats, lambda: (write(), read()))
    alone = sorted(reads)[repeats // 2]
    found = {"register_us": reads, "write_us": timed(repeats, write),
             "doorbell_us": [each - alone for each in both],
             "interrupt_us": timed(repeats, interrupt),
             "pages_per_s": [pages_per_second(device, count) for count in (512, 64, 64, 64, 64, 64, 64, 64)][1:]}
    for ring in rings:
        ring.disable()
        ring.close()
    device.close()
    job.put(found)


def timed(repeats, call):
    """Return the time of each call, in microseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    return times


def pages_per_second(device, count):
    """Pin pages of 4 KiB, and return their number per second."""
    start = time.perf_counter()
    buffer = device.alloc(count * 4096, contiguous=False)
    end = time.perf_counter()
    device.free(buffer)
    return count / (end - start)


PROGRAMS = {program.__name__: program for program in (
    bind, unbind, reserve, space, pins, bring_up, ping_pong, file_copy, stream, measure)}


def load(program):
    """Return a program by name, or by those of its module, which is imported, and its own."""
    module, _, name = program.rpartition(".")
    return getattr(importlib.import_module(module), name) if module else PROGRAMS[name]


def run(program, arguments, source, sink):
    """Run a result of :func:`load` with its job's descriptors."""
    program(Job(source, sink), **arguments)
