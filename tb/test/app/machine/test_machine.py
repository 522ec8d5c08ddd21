"""``weft machine``: drivers of two machines over its sockets, without QEMU; leaving, killed and hostile machines."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from weft.driver.cm import qp_attributes
from weft.driver.cm.cmid import CMID
from weft.driver.connection.connection import ResponseTimeout
from weft.driver.device.capabilities import Capabilities
from weft.driver.verbs import device_list
from weft.driver.verbs.config import ContextConfig
from weft.driver.verbs.device import add_device, remove_device
from weft.driver.vfio_user.messages import Command, Flag, Region
from weft.hdl.contract import abi
from weft.tb.app.machine.machine import Machine
from weft.tb.app.machine.settings import MachineSettings
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.examples import load
from weft.tb.verify.linux.client import Client, access_body, code_of, guest_device, header, memfd
from weft.tb.verify.linux.guest_programs import slow_down

MS = 1_000_000
ACK_TIMEOUT = 18       # 1.1 s
# A loaded machine of two cores keeps a process waiting for long: connections endure 4 s, QPs 9 s without an answer.
CONFIG = {"probe_timeout_ns": 100 * MS, "silence_ns": 10_000 * MS, "extent_bytes": 1 << 16, "max_extents": 1,
          "command_timeout_ns": 100_000 * MS, "cm_timeout": ResponseTimeout(response_timeout=16)}
LIMIT_S, RESOLVE_MS = 100, 20_000


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Let the example wait longer for answers than its defaults: QPs, and the search for the peer's address."""
    monkeypatch.setattr(qp_attributes, "ACK_TIMEOUT", ACK_TIMEOUT)
    monkeypatch.setattr(CMID.resolve_addr, "__defaults__", (RESOLVE_MS,))


class Running:
    """``weft machine`` in a process. A thread reads its output, so that it never waits for a full pipe."""

    def __init__(self, folder, *arguments):
        self.folder, self.lines = folder, []
        self._news, self._seen, self._ended = threading.Condition(), 0, None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "weft.tb.cli", "machine", "--folder", str(folder), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify()
        with self._news:
            self._ended = "its output has ended"
            self._news.notify()

    def _comes(self, words):
        """Return whether one of the lines that were not looked at has these words; look at no line after it."""
        while self._seen < len(self.lines):
            self._seen += 1
            if words in self.lines[self._seen - 1]:
                return True
        return False

    def until(self, words):
        """Wait for the next line with these words."""
        with self._news:
            found = self._news.wait_for(lambda: self._comes(words) or self._ended, LIMIT_S)
            assert found is True, f"no {words!r} in {self.lines}: {found or 'time is up'}"

    def client(self, host):
        return Client(self.folder / f"{host}.sock")

    def end(self):
        """Interrupt it, and return all its lines."""
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        assert status == 0, self.lines
        return "".join(self.lines)

    def close(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()


@contextlib.contextmanager
def running(folder, *arguments):
    machine = Running(folder, *arguments)
    try:
        machine.until("wait for virtual machines")
        yield machine
    finally:
        machine.close()


@contextlib.contextmanager
def devices(machine, *, slow=1):
    """Return the devices of two machines, with their addresses on the list of devices."""
    clients, names = [machine.client(host) for host in "ab"], []
    try:
        made = [guest_device(client) for client in clients]
        for device in made:
            slow_down(device, slow)
        names += [add_device(device, mac=0x02_0000_0000_01 + n, ip=0x0A00_0001 + n, config=ContextConfig(**CONFIG))
                  for n, device in enumerate(made)]
        yield made
        for name, device in zip(names, made, strict=True):
            remove_device(name)
            device.close()
    finally:        # a test that failed leaves them open, and its threads wait for answers
        for client in clients:
            client.close()
        for name in names:
            device_list._devices.pop(name, None)


def ping_pong(rounds, size):
    """Run the example in two threads, and return the times of the rounds."""
    example, failures, times = load("ping_pong"), [], []

    def caught(program):
        try:
            times.extend(program() or ())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=caught, args=(program,), daemon=True) for program in (
        lambda: example.server("10.0.0.1"),
        lambda: example.client("10.0.0.2", "10.0.0.1", rounds=rounds, size=size))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not failures and not any(thread.is_alive() for thread in threads), failures
    return times


@pytest.mark.parametrize("arguments", [
    ("--loss", "0"), ("--loss", "0.05"), ("--backend", "model")], ids=["functional", "loss", "timed"])
def test_ping_pong_through_pci_functions(arguments, tmp_path):
    with running(tmp_path, "--preset", "test", *arguments) as machine:
        with devices(machine):
            assert len(ping_pong(10, 1000)) == 10
        for _ in range(2):
            machine.until("the machine has left")
        output = machine.end()
    assert output.count("a machine is connected") == output.count("the machine has left") == 2
    assert "the card stops" not in output
    for host in "ab":
        line, = [line for line in output.splitlines() if line.startswith(f"host {host}: ")]
        assert "; 0 unsupported requests, " in line and not line.startswith(f"host {host}: 0 frames")


def test_a_hostile_machine_harms_no_other(tmp_path):
    seed, attacks = drawn_seed(), 10
    print(f"run again: WEFT_SEED={seed} pytest tb/test/app/machine/test_machine.py -k hostile")
    with running(tmp_path, "--preset", "test", "--hosts", "a,b,c") as machine:
        hostile = subprocess.Popen([sys.executable, "-m", "weft.tb.verify.linux.hostile_guest", tmp_path / "c.sock",
                                    str(seed)])
        try:
            with devices(machine):
                assert len(ping_pong(10, 1000)) == 10
                for _ in range(attacks):
                    machine.until("c.sock: a machine is connected")
                assert len(ping_pong(3, 1000)) == 3 and hostile.poll() is None
        finally:
            hostile.kill()
            hostile.wait()
        output = machine.end()
    assert len([line for line in output.splitlines() if re.search(r"/c\.sock: the machine (has left|is disc)", line)]) \
        >= attacks
    for host in "ab":
        line, = [line for line in output.splitlines() if line.startswith(f"host {host}: ")]
        assert "; 0 unsupported requests, " in line


@contextlib.contextmanager
def served(machine):
    """Serve a machine in a thread of this process."""
    ended = threading.Event()

    def run():
        while not ended.is_set():
            machine.turn()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield machine
    finally:
        ended.set()
        thread.join()
        machine.close()


@pytest.fixture
def machine(tmp_path):
    """Machine of two hosts in a thread of this process."""
    sentences = []
    machine = Machine(MachineSettings(folder=str(tmp_path), preset="test"), sentences.append)
    machine.sentences, machine.folder = sentences, tmp_path
    with served(machine):
        yield machine
    assert not list(tmp_path.glob("*.sock"))


def client(machine, host="a"):
    return Client(machine.folder / f"{host}.sock")


def wait_for(condition):
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_the_next_machine_finds_a_reset_card_without_memory(machine):
    first = client(machine)
    device = guest_device(first)
    assert Capabilities.of(device).version == abi.VERSION
    buffer = device.alloc(8192)
    device.write64(abi.REGISTER["status_block"].offset, buffer.va)
    function = machine.functions["a"]
    assert device.read64(abi.REGISTER["status_block"].offset) == buffer.va and len(function.dma) == 2
    second = socket.socket(socket.AF_UNIX)
    second.connect(str(machine.folder / "a.sock"))       # waits until the first has left
    first.close()
    wait_for(lambda: any("has left" in sentence for sentence in machine.sentences))
    wait_for(lambda: machine.endpoints[0].connected)
    assert not len(function.dma) and not len(function.interrupts) and not function.dma.files
    second.close()
    third = client(machine)
    again = guest_device(third)
    assert again.read64(abi.REGISTER["status_block"].offset) == 0
    again.close()
    third.close()


def test_pipelined_commands_are_answered_in_order(machine):
    guest = client(machine)
    guest.write(Region.CONFIG, 4, b"\6\0")
    offset = abi.REGISTER["reorder_distance"].offset
    numbers = []
    for value in range(300):
        guest.post(Command.REGION_WRITE, access_body(Region.BAR0, offset, 4, value.to_bytes(4, "little")))
        numbers.append((guest.post(Command.REGION_READ, access_body(Region.BAR0, offset, 4), flags=0), value))
    for number, value in numbers:
        reply = guest.reply()
        assert reply.msg_id == number and reply.body[16:] == value.to_bytes(4, "little")
    guest.close()


def test_a_machine_that_reads_no_replies_delays_no_other(machine):
    guest, other = client(machine), client(machine, "b")
    guest.socket.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            guest.post(Command.REGION_READ, access_body(Region.CONFIG, 0, 4096), flags=0)
    endpoint = machine.endpoints[0]
    wait_for(lambda: endpoint.writes and not endpoint.reads)
    assert len(endpoint._unsent) <= 4096 + 32
    for _ in range(20):
        assert other.read(Region.CONFIG, 0, 2) == b"\x34\x12"
    guest.close()
    other.close()


@pytest.mark.parametrize("data", [
    header(Command.DMA_MAP, 8), header(Command.DMA_MAP, 0xFFFF_FFFF), header(Command.VERSION, 16),
    header(Command.DMA_READ, 16, flags=Flag.REPLY)])
def test_a_violation_ends_only_its_connection(machine, data):
    guest, other = client(machine), client(machine, "b")
    guest.socket.sendall(data)
    with pytest.raises((EOFError, ConnectionError)):
        guest.reply()
    wait_for(lambda: any("is disconnected: " in sentence for sentence in machine.sentences))
    assert other.read(Region.CONFIG, 0, 2) == b"\x34\x12"
    again = client(machine)
    assert code_of(lambda: again.read(3, 0, 4)) == 22
    for each in (guest, other, again):
        each.close()


def test_many_maps_of_one_file(machine):
    """Maps come one page at a time, and go by ranges that match none of them."""
    guest, file, count = client(machine), memfd(1 << 20), 4096
    function = machine.functions["a"]
    for turn in range(2):
        for page in range(count):
            guest.map(page << 12, 4096, page % 256 << 12, file=file)
        assert len(function.dma) == count and function.dma.files == 1
        guest.unmap(0, 1 << 63)
        guest.unmap(1 << 63, (1 << 63) - 4096)
        assert not len(function.dma) and not function.dma.files, turn
    os.close(file)
    guest.close()
