"""Pinned memory with the kernel's pagemap, mlock and madvise; the error message if this machine forbids one of them."""

import contextlib
import ctypes
import errno
import mmap
import os
import random
import resource
from pathlib import Path

import pytest

from weft.driver.linux.libc import PAGE
from weft.driver.linux.mapper import PhysicalMapper, physical_pages
from weft.driver.linux.memory import LinuxMemory
from weft.driver.linux.region import HUGE, HUGE_STATE, address_of, map_huge, open_u_dma_buf
from weft.driver.linux.vfio import VfioMapper
from weft.driver.terms.errors import OutOfResources, PyverbsRDMAError
from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.driver.linux.process_memory import FakeIommu


def exposes_addresses():
    """Return true if the kernel shows physical addresses to this process."""
    page = mmap.mmap(-1, PAGE)
    page[0] = 1
    with contextlib.suppress(PyverbsRDMAError):
        return bool(physical_pages(address_of(page), PAGE))
    return False


def locked_kib():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmLck:")[1].split()[0])


def dontfork(va):
    """Return true if a child does not inherit the page, according to /proc/self/smaps."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and not line.split()[0].endswith(":"):
            start, end = (int(number, 16) for number in line.split()[0].split("-"))
            inside = start <= va < end
        elif inside and line.startswith("VmFlags:"):
            return "dc" in line.split()
    raise AssertionError(f"{va:#x} is not mapped")


@pytest.fixture
def iommu():
    return FakeIommu()


@pytest.fixture
def memory(iommu):
    """Memory of a card with an IOMMU."""
    file = os.open("/dev/null", os.O_RDWR)
    memory = LinuxMemory(VfioMapper(file, ioctl=iommu))
    yield memory
    memory.close()
    assert not iommu.mapped


def test_physical_addresses_of_real_pages():
    memory = LinuxMemory(PhysicalMapper())
    if not exposes_addresses():
        with pytest.raises(PyverbsRDMAError, match="without CAP_SYS_ADMIN|cannot be read"):
            memory.alloc(PAGE)
        assert memory.pinned == 0
        return
    before = locked_kib()
    buffer = memory.alloc(5 * PAGE + 7, contiguous=False)
    assert locked_kib() - before == 6 * PAGE // 1024 and dontfork(buffer.va)
    pages = [buffer.physical(n * PAGE) for n in range(6)]
    assert len(set(pages)) == 6 and all(page and not page % PAGE for page in pages)
    assert buffer.physical(3 * PAGE + 5) == pages[3] + 5 and buffer.read(0, buffer.size) == bytes(buffer.size)
    # A page that is mapped at a second address keeps its physical address.
    file = os.memfd_create("shared")
    os.truncate(file, PAGE)
    one, two = memory.map(file, 0, PAGE), memory.map(file, 0, PAGE)
    assert one.va != two.va and one.physical() == two.physical()
    one.write(10, b"seen")
    assert two.read(10, 4) == b"seen" == os.pread(file, 4, 10)
    os.close(file)
    for each in (buffer, one, two):
        memory.free(each)
    assert locked_kib() == before and memory.pinned == 0
    memory.close()


def test_missing_pages_raise(tmp_path):
    page = mmap.mmap(-1, PAGE)
    with pytest.raises(PyverbsRDMAError, match="is not in memory") as failed:
        physical_pages(address_of(page), PAGE)
    assert failed.value.error_code == errno.EFAULT
    hidden = tmp_path / "pagemap"
    va = 3 * PAGE
    hidden.write_bytes(bytes(24) + (1 << 63).to_bytes(8, "little"))
    with pytest.raises(PyverbsRDMAError, match="CAP_SYS_ADMIN"):
        physical_pages(va, 1, hidden)
    with pytest.raises(PyverbsRDMAError, match="cannot be read"):
        physical_pages(va, 1, tmp_path / "nothing")


def test_locked_memory_limit_raises_a_sentence():
    """The test runs in a child process, which gives up the privilege to lock more."""
    child = os.fork()
    if not child:
        code = 1
        with contextlib.suppress(BaseException):
            os.setgroups([]) if os.getuid() == 0 else None
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (PAGE, PAGE))
            if os.getuid() == 0:
                os.setuid(65534)
            try:
                LinuxMemory(PhysicalMapper(lambda va, length: [])).alloc(8 * PAGE, contiguous=False)
            except PyverbsRDMAError as error:
                code = 0 if f"may lock {PAGE} bytes (ulimit -l)" in str(error) else 2
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_huge_pages_or_a_sentence_about_them():
    free = int((HUGE_STATE / "free_hugepages").read_text()) if HUGE_STATE.exists() else 0
    if not free:
        with pytest.raises(OutOfResources, match=r"1 huge pages of 2 MiB are needed, (0|no) are free .*nr_hugepages"):
            map_huge(HUGE)
        with pytest.raises(OutOfResources, match="2 MiB are needed"):
            LinuxMemory(PhysicalMapper()).alloc(64 * PAGE)
        return
    memory = LinuxMemory(PhysicalMapper())
    buffer = memory.alloc(HUGE, page_bytes=HUGE)
    assert not buffer.va % HUGE and not buffer.physical() % HUGE
    assert [buffer.physical(at) - buffer.physical() for at in range(0, HUGE, PAGE)] == list(range(0, HUGE, PAGE))
    memory.free(buffer)
    ring = memory.alloc(3 * PAGE, align=PAGE)
    assert ring.physical(2 * PAGE) - ring.physical() == 2 * PAGE
    memory.free(ring)
    assert memory.pinned == 0
    memory.close()


def test_pins_share_pages_and_count_their_users(memory, iommu):
    seed = drawn_seed()
    print(f"run again: WEFT_SEED={seed} pytest tb/test/driver/linux/test_memory.py -k share")
    rng, arena = random.Random(seed), mmap.mmap(-1, 64 * PAGE)
    start, pins = address_of(arena), []
    for _ in range(400):
        if pins and rng.random() < 0.5:
            memory.unpin(pins.pop(rng.randrange(len(pins))))
        else:
            at = rng.randrange(63 * PAGE)
            pins.append(memory.pin(start + at, rng.randint(1, 64 * PAGE - at)))
        wanted = {page for pin in pins for page in range(pin.va // PAGE, -(-(pin.va + pin.size) // PAGE))}
        mapped = {page for va, size in iommu.mapped.items() for page in range(va // PAGE, (va + size) // PAGE)}
        assert wanted <= mapped     # and no page twice, which the kernel would reject
        assert all(pin.physical() == pin.va for pin in pins)
        assert bool(pins) == bool(mapped)
    for pin in pins:
        memory.unpin(pin)
    assert not iommu.mapped and not dontfork(start) and memory.pinned == 0


def test_pinned_memory_is_not_inherited(memory):
    arena = mmap.mmap(-1, 4 * PAGE)
    pins = [memory.pin(address_of(arena), PAGE), memory.pin(address_of(arena) + 100, PAGE)]
    assert dontfork(address_of(arena)) and dontfork(address_of(arena) + PAGE)
    assert not dontfork(address_of(arena) + 2 * PAGE)
    memory.unpin(pins[0])
    assert dontfork(address_of(arena))      # the other pin still needs it
    memory.unpin(pins[1])
    assert not dontfork(address_of(arena))


def test_card_sees_the_memory_of_the_program(memory):
    data = ctypes.create_string_buffer(b"mine", 3 * PAGE)
    pin = memory.pin(ctypes.addressof(data), len(data))
    assert pin.read(0, 4) == b"mine" and memory.buffer_at(pin.va + 5, 7) is pin
    pin.write(1, b"INE")
    assert data.raw[:4] == b"mINE"
    with pytest.raises(ValueError, match="leave a buffer"):
        pin.read(3 * PAGE - 1, 2)
    memory.unpin(pin)
    with pytest.raises(ValueError, match="leave a buffer"):
        pin.read(0, 1)
    with pytest.raises(PyverbsRDMAError, match="not memory that the card may use"):
        memory.buffer_at(ctypes.addressof(data), 1)


def test_kernel_error_changes_nothing(memory, iommu):
    arena = mmap.mmap(-1, 4 * PAGE)
    pin = memory.pin(address_of(arena) + PAGE, PAGE)
    for code, sentence in ((errno.ENOMEM, "ulimit -l"), (errno.EINVAL, "address bits"), (errno.EPERM, "VFIO refused")):
        iommu.refuse = code
        with pytest.raises(PyverbsRDMAError, match=sentence) as failed:
            memory.pin(address_of(arena), 4 * PAGE)
        assert failed.value.error_code == code
        with pytest.raises(PyverbsRDMAError, match=sentence):
            memory.alloc(PAGE)
    iommu.refuse = None
    assert iommu.mapped == {address_of(arena) + PAGE: PAGE}
    with pytest.raises(PyverbsRDMAError, match="1 pinned ranges are in use"):
        memory.close()
    memory.unpin(pin)


@pytest.mark.parametrize(("arguments", "sentence"), [
    ((-1, 0, PAGE), "cannot be mapped"), ((None, 1, PAGE), "not whole pages"),
    ((None, 0, 3 * PAGE), "that the file has"), ((None, 0, 0), "are possible"), ((None, -PAGE, PAGE), "are possible")])
def test_files_that_cannot_be_shared(memory, arguments, sentence):
    file = os.memfd_create("small")
    os.truncate(file, 2 * PAGE)
    with pytest.raises(PyverbsRDMAError, match=sentence):
        memory.map(file if arguments[0] is None else arguments[0], *arguments[1:])
    os.close(file)
    assert memory.pinned == 0


@pytest.fixture
def u_dma_buf(tmp_path):
    """Files that the kernel module provides for 64 pages."""
    entry, devices = tmp_path / "class" / "udmabuf0", tmp_path / "dev"
    entry.mkdir(parents=True)
    devices.mkdir()
    (entry / "size").write_text(f"{64 * PAGE}\n")
    (entry / "phys_addr").write_text("0x0000000170000000\n")
    (devices / "udmabuf0").write_bytes(bytes(64 * PAGE))
    return {"listed": tmp_path / "class", "devices": devices}


def test_contiguous_memory_out_of_a_u_dma_buf(u_dma_buf, tmp_path):
    memory = LinuxMemory(PhysicalMapper(), [open_u_dma_buf(**u_dma_buf)])
    rng, buffers = random.Random(4), []
    for _ in range(100):
        if buffers and rng.random() < 0.5:
            memory.free(buffers.pop(rng.randrange(len(buffers))))
            continue
        with contextlib.suppress(OutOfResources):
            buffers.append(memory.alloc(rng.randint(PAGE + 1, 9 * PAGE), align=rng.choice([64, PAGE, 4 * PAGE])))
            ranges = sorted((b.physical(), b.physical() + b.size) for b in buffers)
            assert all(end <= start for (_, end), (start, _) in zip(ranges, ranges[1:], strict=False))
            assert all(0x1_7000_0000 <= b.physical(at) == b.physical() + at for b in buffers for at in (0, b.size - 1))
    assert buffers
    for buffer in buffers:
        memory.free(buffer)
    assert memory.pinned == 0
    memory.close()
    with pytest.raises(PyverbsRDMAError, match="is its kernel module loaded"):
        open_u_dma_buf(listed=tmp_path / "nothing")
    (u_dma_buf["devices"] / "udmabuf0").unlink()
    with pytest.raises(PyverbsRDMAError, match="cannot be opened"):
        open_u_dma_buf(**u_dma_buf)
