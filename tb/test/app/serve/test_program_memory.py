"""Tests of programs' memory as the card accesses it: through their file ``/proc/self/mem``."""

import contextlib
import ctypes
import mmap
import os
import random
import signal

import pytest

from weft.driver.device.attached import MemoryFault
from weft.driver.device.page_table import page_list
from weft.driver.serve.program_memory import LARGE_PAGE, PAGE, Place, ProgramMemory
from weft.driver.terms.errors import InUse, InvalidValue
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop
from weft.tb.verify.programs.raw_client import address_of, own_memory, remove

PRIVATE, SHARED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS


@pytest.fixture
def device():
    return FunctionalDevice(EventLoop())


@contextlib.contextmanager
def opened(ended=lambda: None):
    """Yield the memory of this process."""
    file = own_memory()
    memory = ProgramMemory(file, ended)
    os.close(file)
    yield memory
    memory.close()


@contextlib.contextmanager
def attached(device, memory, address, length, iova):
    """Yield the buffer of a range."""
    with contextlib.ExitStack() as lent:
        yield Place(memory, address, length, iova).attach(device, lent)


@pytest.mark.parametrize("large", [False, True], ids=["pages", "large pages"])
def test_bytes_read_ahead_are_those_that_a_read_returns(device, large):
    """A read ahead ends at the first page that the program does not have, or fails as the read does."""
    rng, size = random.Random(3), 2 * LARGE_PAGE if large else 40 * PAGE
    theirs = mmap.mmap(-1, size + LARGE_PAGE, flags=PRIVATE)
    at = -address_of(theirs) % LARGE_PAGE
    theirs[at:at + size] = rng.randbytes(size)
    there = size - 3 * PAGE
    remove(theirs, at + there)
    with opened() as memory, attached(device, memory, address_of(theirs) + at, size, LARGE_PAGE * 8) as whole:
        assert whole.page_bytes == (LARGE_PAGE if large else PAGE)
        more = failed = 0
        for _ in range(300):
            start = rng.randrange(there - 5 * PAGE, there + 2 * PAGE)
            length = rng.randrange(1, PAGE - (0 if large else start % PAGE) + 1)
            physical, most = whole.physical(start), length + rng.randrange(4 * PAGE)
            try:
                expected = device.memory.read(physical, length)
            except MemoryFault:
                failed += 1
                with pytest.raises(MemoryFault):
                    device.memory.read_ahead(physical, length, most)
                continue
            found = device.memory.read_ahead(physical, length, most)
            assert length <= len(found) <= most and found[:length] == expected
            assert found == theirs[at + start:at + start + len(found)]
            more += len(found) > length
        assert more > 30 and failed > 30


@pytest.mark.parametrize("flags", [PRIVATE, SHARED], ids=["private", "shared"])
def test_both_sides_see_each_others_writes(device, flags):
    rng, theirs = random.Random(1), mmap.mmap(-1, 5 * PAGE, flags=flags)
    at = address_of(theirs)
    with opened() as memory, attached(device, memory, at + 100, 5 * PAGE - 200, 0x7000_0064) as whole:
        assert (whole.va, whole.size, whole.page_bytes) == (0x7000_0000, 5 * PAGE, PAGE)
        for _ in range(200):
            at = rng.randrange(5 * PAGE)
            data = rng.randbytes(rng.randrange(1, 5 * PAGE - at + 1))
            whole.write(at, data)
            assert whole.read(at, len(data)) == data == theirs[at : at + len(data)]
            assert device.memory.read(whole.physical(at), 1) == data[:1]
            theirs[3 * PAGE + at % PAGE] ^= 255
            assert whole.read(3 * PAGE + at % PAGE, 1)[0] == theirs[3 * PAGE + at % PAGE]
            device.memory.write(whole.physical(at), b"x")
            assert theirs[at] == ord("x")
    assert not device.memory._pages


@pytest.mark.parametrize(("start", "length", "delta", "large"), [
    (0, 2 * LARGE_PAGE, 0, True),
    (3 * PAGE + 5, 2 * LARGE_PAGE, 4 * LARGE_PAGE, True),       # begins and ends within large pages
    (3 * PAGE, 2 * LARGE_PAGE, LARGE_PAGE + PAGE, False),       # the addresses differ within a large page
    (0, 2 * LARGE_PAGE - PAGE, 0, False)])                      # less than 4 MiB
def test_large_pages_where_both_addresses_lie_alike(device, start, length, delta, large):
    rng, theirs = random.Random(2), mmap.mmap(-1, 4 * LARGE_PAGE, flags=PRIVATE)
    base = -(-address_of(theirs) // LARGE_PAGE) * LARGE_PAGE
    lead = base - address_of(theirs)
    with opened() as memory, attached(device, memory, base + start, length, base + start + delta) as whole:
        assert whole.page_bytes == (LARGE_PAGE if large else PAGE)
        assert len(page_list(whole, whole.va, whole.size, whole.page_bytes)) <= (4 if large else 1025)
        for at in [rng.randrange(length) for _ in range(20)]:
            data = rng.randbytes(min(3 * PAGE, length - at))
            whole.write(start % PAGE + at, data)
            assert theirs[lead + start + at :][: len(data)] == data
            va = base + start + delta + at
            page = page_list(whole, va, 1, whole.page_bytes)[0]
            assert device.memory.read(page + va % whole.page_bytes, 1) == data[:1]
    assert not device.memory._pages


@pytest.mark.parametrize("how", [
    lambda folder: os.memfd_create("mem"), lambda folder: os.open("/proc/self/maps", os.O_RDONLY),
    lambda folder: os.open("/proc/self/mem", os.O_RDONLY), lambda folder: os.open("/proc/self/comm", os.O_RDWR),
    lambda folder: os.open("/dev/zero", os.O_RDWR), lambda folder: os.pipe()[0],
    lambda folder: os.open(folder / "mem", os.O_RDWR | os.O_CREAT)],
    ids=["memfd", "maps", "read-only", "comm", "device", "pipe", "file"])
def test_a_file_that_is_no_memory_is_refused(how, tmp_path):
    file = how(tmp_path)
    with pytest.raises(InvalidValue):
        ProgramMemory(file)
    os.close(file)


@pytest.mark.parametrize(("address", "length", "iova"), [
    (PAGE, 0, PAGE), (PAGE, 1 << 56, PAGE), ((1 << 56) - PAGE, PAGE + 1, 0), ((1 << 64) - PAGE, PAGE, 0),
    (PAGE + 1, PAGE, PAGE), (PAGE, PAGE, PAGE + 8), (PAGE, PAGE + 1, (1 << 64) - PAGE),
    (PAGE, 1 << 30, (1 << 64) - PAGE)])
def test_a_range_that_wraps_or_lies_otherwise_in_its_pages_is_refused(address, length, iova):
    with opened() as memory, pytest.raises(InvalidValue):
        Place(memory, address, length, iova)


def test_a_memory_stays_as_long_as_a_region_is_in_it(device):
    with opened() as memory:
        with attached(device, memory, PAGE, PAGE, PAGE), pytest.raises(InUse):
            memory.close()
        assert memory.users == 0


def test_pages_that_the_program_removed_cannot_be_read_and_a_write_is_ignored(device):
    ended = []
    with opened(lambda: ended.append(1)) as memory:
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        address = libc.mmap(None, PAGE, mmap.PROT_READ | mmap.PROT_WRITE, PRIVATE, -1, 0)
        with attached(device, memory, address, PAGE, 0) as page:
            page.write(0, b"here")
            assert page.read(0, 4) == b"here"
            libc.munmap(ctypes.c_void_p(address), PAGE)
            with pytest.raises(MemoryFault):
                page.read(0, 4)
            page.write(0, b"there")
    assert not ended


@pytest.mark.parametrize("by", ["signal", "exec"])
def test_memory_of_a_program_that_ended_is_noticed(device, by):
    theirs, (ours, given) = mmap.mmap(-1, PAGE, flags=PRIVATE), os.pipe()
    theirs[:4] = b"here"
    child = os.fork()
    if not child:
        os.write(given, b"%d" % own_memory())
        if by == "exec":
            while theirs[4:5] != b"!":
                pass
            os.execvp("sleep", ["sleep", "100"])
        signal.pause()
    ended, number = [], os.read(ours, 10).decode()
    file = os.open(f"/proc/{child}/mem", os.O_RDWR)
    memory = ProgramMemory(file, lambda: ended.append(1))
    try:
        with attached(device, memory, address_of(theirs), PAGE, 0) as page:
            assert page.read(0, 4) == b"here" and number.isdigit()
            page.write(0, b"child")
            assert page.read(0, 5) == b"child" and theirs[:5] == b"here\0"
            if by == "exec":
                page.write(4, b"!")
                while _executable(child) == _executable(os.getpid()):
                    pass
            else:
                os.kill(child, signal.SIGKILL)
                os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            assert not ended
            with pytest.raises(MemoryFault):
                page.read(0, 4)
            page.write(0, b"there")
            assert len(ended) == 2
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for descriptor in (file, ours, given):
            os.close(descriptor)
        memory.close()


def _executable(process):
    return os.readlink(f"/proc/{process}/exe")
