"""Memory of another process for a card: addresses, mappings and physical pages, with a stand-in for the kernel."""

import errno
import mmap
import os
import subprocess
import sys

import pytest

from weft.driver.linux import iommufd, vfio
from weft.driver.linux.foreign import END, FIRST, ForeignRanges, process_of
from weft.driver.linux.libc import PAGE
from weft.driver.linux.mapper import PhysicalMapper
from weft.driver.linux.memory import LinuxMemory
from weft.driver.linux.region import HUGE
from weft.driver.serve.program_memory import ProgramMemory
from weft.driver.terms.errors import InvalidValue, OutOfResources, PyverbsRDMAError
from weft.driver.terms.program_mapping import MappingMethod
from weft.tb.verify.programs.raw_client import address_of, own_memory


class Unmaps:
    """Kernel that records unmapped ranges; ``error`` is that of the next call."""

    def __init__(self):
        self.ranges, self.error = [], None

    def __call__(self, _file, request, argument):
        if request == iommufd.IOAS_ALLOC:
            argument[:] = iommufd.ALLOC.pack(size=12, out_ioas_id=7)
            return
        if self.error:
            error, self.error = self.error, None
            raise OSError(error, os.strerror(error))
        layout = {vfio.UNMAP_DMA: vfio.DMA_UNMAP, iommufd.IOAS_UNMAP: iommufd.UNMAP}[request]
        fields = layout.unpack(argument)
        self.ranges.append((fields.iova, fields.size if request == vfio.UNMAP_DMA else fields.length))


def by_vfio(kernel):
    return vfio.VfioMapper(os.open("/dev/null", os.O_RDWR), ioctl=kernel)


def by_iommufd(kernel):
    return iommufd.IommufdMapper(os.open("/dev/null", os.O_RDWR), ioctl=kernel)


WAYS = pytest.mark.parametrize(("make", "way"), [(by_vfio, MappingMethod.VFIO), (by_iommufd, MappingMethod.IOMMUFD)])


@pytest.fixture
def memory():
    file = own_memory()
    memory = ProgramMemory(file)
    os.close(file)
    yield memory
    memory.close()


@WAYS
def test_ranges_have_separate_addresses_and_are_unmapped_once(make, way, memory):
    kernel = Unmaps()
    mapper = make(kernel)
    linux = LinuxMemory(mapper)
    assert mapper.for_programs.method is way and mapper.for_programs.space == (7 if way is MappingMethod.IOMMUFD else 0)
    theirs = mmap.mmap(-1, 5 * PAGE)
    at = address_of(theirs)
    buffers = [linux.attach(memory, at, 5 * PAGE, va, PAGE) for va in (at, 0x5000, 0x5000)]
    taken = [(buffer.dma, buffer.dma + buffer.size) for buffer in buffers]
    assert all(FIRST <= start and end <= END for start, end in taken)
    assert all(end <= start for (_, end), (start, _) in zip(sorted(taken), sorted(taken)[1:], strict=False))
    for buffer in buffers:
        assert [buffer.physical(n * PAGE + 5) for n in range(5)] == [buffer.dma + n * PAGE + 5 for n in range(5)]
        assert buffer.dma % HUGE == at % HUGE       # a huge page of the program is a large page of the card
    buffers[0].write(PAGE - 3, b"across a page")
    assert theirs[PAGE - 3 :][:13] == buffers[1].read(PAGE - 3, 13) == b"across a page"
    for outside in ((-1, 2), (5 * PAGE - 1, 2)):
        with pytest.raises(InvalidValue, match="leave a buffer of"):
            buffers[0].read(*outside)
    assert linux.pinned == 3
    with pytest.raises(InvalidValue, match="3 pinned ranges are in use"):
        linux.close()
    for buffer in buffers:
        linux.detach(buffer)
    assert kernel.ranges == [(start, 5 * PAGE) for start, _ in taken] and not linux.pinned
    assert linux.attach(memory, at, PAGE, at, PAGE).dma == min(taken)[0]
    linux.detach(linux.attach(memory, at, PAGE, at, PAGE))


@WAYS
def test_a_range_that_the_kernel_keeps_is_not_given_to_another_program(make, way, memory):
    kernel = Unmaps()
    ranges = ForeignRanges(make(kernel))
    first = ranges.attach(memory, 0, PAGE, 0, PAGE)
    kernel.error = errno.EINVAL
    with pytest.raises(OSError):
        ranges.detach(first)
    second = ranges.attach(memory, 0, PAGE, 0, PAGE)
    assert second.dma != first.dma and len(ranges) == 2
    kernel.error = errno.ENOENT         # the program has not mapped it
    ranges.detach(first)
    ranges.detach(second)
    assert not len(ranges)


def test_all_addresses_in_use(memory):
    ranges = ForeignRanges(by_vfio(Unmaps()))
    whole = ranges.attach(memory, 0, END - FIRST, 0, PAGE)
    with pytest.raises(OutOfResources, match="4096 bytes of a program: the card has no addresses for them"):
        ranges.attach(memory, 0, PAGE, 0, PAGE)
    ranges.detach(whole)
    ranges.detach(ranges.attach(memory, 0, PAGE, 0, PAGE))


def test_physical_pages_of_another_process():
    program = subprocess.Popen([sys.executable, "-c", "import os, sys; sys.stdout.write('x'); sys.stdout.flush(); "
                                "sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    program.stdout.read(1)
    file = os.open(f"/proc/{program.pid}/mem", os.O_RDWR)
    memory = ProgramMemory(file)
    os.close(file)
    asked = []

    def pages(address, size, path):
        asked.append((address, size, path))
        return [0x9000, 0x3000]

    ranges = ForeignRanges(PhysicalMapper(), pages)
    buffer = ranges.attach(memory, 0x7000, 2 * PAGE, 0x20_0000, HUGE)
    assert asked == [(0x7000, 2 * PAGE, f"/proc/{program.pid}/pagemap")] and process_of(memory) == program.pid
    assert (buffer.physical(PAGE - 1), buffer.physical(PAGE)) == (0x9FFF, 0x3000)
    assert (buffer.page_bytes, buffer.dma) == (PAGE, 0)
    ranges.detach(buffer)
    program.communicate()
    with pytest.raises(PyverbsRDMAError, match="the process of the memory is not found|has no memory any more"):
        ranges.attach(memory, 0x7000, 2 * PAGE, 0x20_0000, HUGE)
    assert not len(ranges)
    memory.close()
