"""Tests of copies of many pages: the pages that a program lacks, the end of its address space, copies that block."""

import ctypes
import fcntl
import mmap
import os
import random
import signal
import socket
import struct
import threading

import pytest

from weft.driver.ibverbs.build import missing
from weft.driver.ibverbs.messages import Kind
from weft.driver.serve import calls, process
from weft.driver.serve.direct.objects import DirectClient
from weft.driver.terms.enums import WCStatus, WROpcode
from weft.tb.sim.flow.tools import tools_expected
from weft.tb.verify.programs.hostile import works
from weft.tb.verify.programs.local import PolledBackend, local_daemon
from weft.tb.verify.programs.raw_client import PAGE, RawEnd, address_of

PAGES, ABSENT = 4, 2
UFFD, UFFD_API, UFFDIO_API, UFFDIO_REGISTER = 323, 0xAA, 0xC018AA3F, 0xC020AA00
BY_NUMBER, BY_FILE = "by number", "by file"


@pytest.fixture(autouse=True, scope="module")
def compiler():
    if (sentence := missing()) and not tools_expected():
        pytest.skip(sentence)


@pytest.fixture
def served():
    with local_daemon(backend_type=PolledBackend) as (daemon, messages):
        yield daemon, messages


class LongEnd(RawEnd):
    """Program with memory of :data:`PAGES` pages of random bytes."""

    def memory(self, pages, pd, access=15):
        mapping, keys = super().memory(PAGES, pd, access)
        mapping[:] = random.randbytes(PAGES * PAGE)
        return mapping, keys


def long_pair(daemon):
    ends = LongEnd(daemon, "a"), LongEnd(daemon, "b")
    for end, peer in (ends, ends[::-1]):
        end.connect(peer)
    return ends


def change(mapping, call, *arguments):
    """Call a function of the C library with the address of the page :data:`ABSENT` and its size."""
    function = getattr(ctypes.CDLL(None, use_errno=True), call)
    at = ctypes.c_void_p(address_of(mapping) + ABSENT * PAGE)
    assert function(at, ctypes.c_size_t(PAGE), *arguments) == 0, os.strerror(ctypes.get_errno())


def statuses(*ends):
    return [[WCStatus(wc.status) for wc in end.completions.take()] for end in ends]


@pytest.mark.parametrize("way", [BY_NUMBER, BY_FILE])
@pytest.mark.parametrize(("lacks", "opcode", "status", "copied"), [
    ("target", WROpcode.RDMA_WRITE, WCStatus.SUCCESS, (0, 1, 3)),
    ("source", WROpcode.RDMA_WRITE, WCStatus.LOC_QP_OP_ERR, ()),
    ("target", WROpcode.RDMA_READ, WCStatus.REM_OP_ERR, ()),
    ("source", WROpcode.RDMA_READ, WCStatus.SUCCESS, (0, 1, 3)),
    ("protected", WROpcode.RDMA_WRITE, WCStatus.SUCCESS, (0, 1, 2, 3)),
])
def test_a_missing_or_protected_page_has_the_same_effect_in_each_way(
        served, monkeypatch, way, lacks, opcode, status, copied):
    """``lacks``: which end has no third page, or has a target page that it may only read itself."""
    if way == BY_FILE:
        monkeypatch.setattr(calls, "owner_of", lambda file, connection: 0)
    daemon, messages = served
    a, b = long_pair(daemon)
    numbers = {memory.process for client in daemon.clients.values() for memory in client.objects[Kind.MEMORY].values()}
    assert numbers == {os.getpid() if way == BY_NUMBER else 0}
    of_a, of_b = bytes(a.mapping), bytes(b.mapping)
    if lacks == "protected":
        change(b.mapping, "mprotect", mmap.PROT_READ)
    else:
        change((a if lacks == "source" else b).mapping, "munmap")
    a.write(b, opcode=opcode, length=PAGES * PAGE)
    assert a.completion().status == status
    reads = opcode == WROpcode.RDMA_READ
    data, before, there = (of_b, of_a, a.mapping) if reads else (of_a, of_b, b.mapping)
    for page in set(range(PAGES)) - ({ABSENT} if 2 not in copied else set()):
        part = slice(page * PAGE, (page + 1) * PAGE)
        assert there[part] == (data if page in copied else before)[part]
    assert not messages
    if lacks == "protected":
        change(b.mapping, "mprotect", mmap.PROT_READ | mmap.PROT_WRITE)


def test_the_number_of_a_process_is_not_used_after_its_exec(served, monkeypatch):
    """The file of its memory belongs to the program before, and nothing of the one after is read."""
    daemon, _ = served
    a = LongEnd(daemon, "a")
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.write(ready[1], b"1")
        os.read(go[0], 1)
        os.execvp("sleep", ["sleep", "600"])
    try:
        os.read(ready[0], 1)
        file = os.open(f"/proc/{child}/mem", os.O_RDWR)
        os.write(go[1], b"1")
        while not (place := _code_of(child, b"sleep")):
            os.sched_yield()
        monkeypatch.setattr(calls, "owner_of", lambda file, connection: child)
        b = RawEnd(daemon, "b")
        b.keys = b.register(b.share(file), place, PAGES * PAGE, b.pd)
        os.close(file)
        for end, peer in ((a, b), (b, a)):
            end.connect(peer)
        before = bytes(a.mapping)
        a.write(b, opcode=WROpcode.RDMA_READ, length=PAGES * PAGE)
        assert a.completion().status == WCStatus.RETRY_EXC_ERR and a.mapping[:] == before
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for end in (*ready, *go):
            os.close(end)


def _code_of(number, name):
    """Return the address of code of a process that executes the file ``name``, or None."""
    with open(f"/proc/{number}/comm", "rb") as comm, open(f"/proc/{number}/maps", "rb") as maps:
        if comm.read().strip() != name:
            return None
        for line in maps:
            place, rights, *_ = line.split()
            start, end = (int(part, 16) for part in place.split(b"-"))
            if rights.startswith(b"r-x") and end - start >= PAGES * PAGE and b".so" in line:
                return start
    return None


def test_memory_of_another_user_or_process_is_not_accessed_by_number():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open("/proc/self/mem", "r+b", 0) as memory, open("/proc/1/status", "rb") as other:
        assert process.owner_of(memory.fileno(), ours) == os.getpid()
        assert process.owner_of(other.fileno(), ours) == 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: 12345)
            assert process.owner_of(memory.fileno(), ours) == 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(process, "_users_of", lambda number: {os.getuid(), 12345})      # a set-user-ID program
            assert process.owner_of(memory.fileno(), ours) == 0


# ------------------------------------------------------------------------------------------------ copies that block

def test_a_copy_that_does_not_end_is_reported_once_it_is_old(monkeypatch):
    monkeypatch.setattr(process, "LOOK_S", 0.01)
    monkeypatch.setattr(process, "LIMIT_S", 0.05)
    reported, sentences, looks = threading.Event(), [], []

    class Client:
        name = "a"

        def blocks(self, end):
            assert end is process.end
            return "was dropped"

    def copying():
        looks.append(next(numbers, 41))
        if len(looks) > 100:
            reported.set()
        return looks[-1], client

    numbers, client = iter(range(1, 40, 2)), Client()
    watch = process.CopyWatch(copying, sentences.append)      # 20 copies, then one that does not end
    try:
        assert reported.wait(60)
        assert sentences == ["a program on a was dropped"]      # once
    finally:
        watch.close()


@pytest.mark.parametrize("pidfd", [True, False], ids=["by_socket", "by_number"])
def test_the_process_that_connected_is_killed(monkeypatch, pidfd):
    """Without a descriptor of the process from its socket, its memory shows that it has its number still."""
    if not pidfd:
        monkeypatch.setattr(process, "_SO_PEERPIDFD", 9999)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, open("/proc/self/mem", "rb") as other:
        listener.bind("\0" + os.urandom(8).hex())
        listener.listen()
        child = os.fork()
        if not child:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(listener.getsockname())
                signal.pause()
        connection, _ = listener.accept()
        with connection, open(f"/proc/{child}/mem", "rb") as memory:
            if not pidfd:
                assert not process.end(connection, [other.fileno()]) and os.waitpid(child, os.WNOHANG) == (0, 0)
            assert process.end(connection, [other.fileno(), memory.fileno()])
            assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
            assert not process.end(connection, [memory.fileno()])      # it has ended
        assert not process.end(connection, [])                         # and its connection is closed


def _userfault(mapping):
    """Return a descriptor of a handler of page faults that handles none, for the page :data:`ABSENT`, or None."""
    file = ctypes.CDLL(None, use_errno=True).syscall(UFFD, os.O_CLOEXEC)
    if file < 0:
        return None
    change(mapping, "madvise", mmap.MADV_DONTNEED)
    fcntl.ioctl(file, UFFDIO_API, struct.pack("3Q", UFFD_API, 0, 0))
    fcntl.ioctl(file, UFFDIO_REGISTER, struct.pack("4Q", address_of(mapping) + ABSENT * PAGE, PAGE, 1, 0))
    return file


def test_a_page_that_its_program_never_provides_ends_that_program_alone(monkeypatch):
    """The end of the process, which is that of the test, is that of its handler of page faults."""
    monkeypatch.setattr(process, "LOOK_S", 0.05)
    monkeypatch.setattr(process, "LIMIT_S", 0.2)
    with local_daemon(backend_type=PolledBackend) as (daemon, messages):
        a, b = long_pair(daemon)
        good = long_pair(daemon)
        handler = _userfault(b.mapping)
        if handler is None:
            pytest.skip("this user may not handle page faults of the kernel (userfaultfd)")
        killed = threading.Event()

        def end(connection, files):
            os.close(handler)
            killed.set()
            return True

        monkeypatch.setattr(process, "end", end)
        a.write(b, length=PAGES * PAGE)
        assert killed.wait(60)
        works(*good)
        while sum(isinstance(client, DirectClient) for client in daemon.clients.values()) > 3:
            daemon.turn()
        assert len(messages) == 1 and "does not end; it was killed" in messages[0]


@pytest.mark.parametrize(("call", "opcode"), [("pread", WROpcode.RDMA_READ), ("pwrite", WROpcode.RDMA_WRITE)])
def test_a_page_that_never_arrives_ends_its_program_on_cards_too(monkeypatch, call, opcode):
    """The thread that is blocked is that of the daemon, so another one reports it. A file system that the program
    serves blocks the call; here the call waits for the end of the program."""
    monkeypatch.setattr(process, "LOOK_S", 0.05)
    monkeypatch.setattr(process, "LIMIT_S", 0.2)
    real, killed = getattr(os, call), threading.Event()
    with local_daemon() as (daemon, messages):
        (a, b), good = long_pair(daemon), long_pair(daemon)
        place, victims, lapsed = address_of(b.mapping) + ABSENT * PAGE, [], []

        def blocked(file, data, address):
            end = address + (data if call == "pread" else len(data))
            if address <= place < end and not killed.wait(60):
                lapsed.append(address)
            return real(file, data, address)

        def end(connection, files):
            victims.append((connection, *files))
            killed.set()
            return True

        monkeypatch.setattr(os, call, blocked)
        monkeypatch.setattr(process, "end", end)
        clients = set(daemon.clients.values())
        a.write(b, opcode=opcode, length=PAGES * PAGE)
        while len(daemon.clients) > 3:
            daemon.turn()
            assert not lapsed
        (gone,) = clients - set(daemon.clients.values())
        assert victims[0][0] is gone.socket and len(victims) == 1 and len(victims[0]) == 2
        assert len(messages) == 1 and "does not end; it was killed" in messages[0]
        works(*good)
