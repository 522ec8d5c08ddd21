"""Memory of other processes for a card of this one."""

import contextlib
import errno
import os

from ..device.device import DmaBuffer
from ..device.page_table import RangeAllocator
from ..terms.errors import InvalidValue, OutOfResources
from ..terms.program_mapping import MappingMethod
from .libc import PAGE
from .mapper import physical_pages
from .region import HUGE

# Addresses for the card. Every IOMMU has them, and Linux puts no memory of a process there, whose addresses the card
# uses as well.
FIRST, END = 1 << 32, 1 << 38


class ForeignBuffer(DmaBuffer):
    """Pages of another process.

    Parameters
    ----------
    memory : ForeignMemory
    address, size : int
        Range in ``memory``, of whole pages.
    va : int
        Address of the range in work requests.
    page_bytes : int
    pages : sequence of int
        Address of each page of 4 KiB for the card.
    dma : int
        Address at which the process maps the range for the card itself; 0 if it does not.
    """

    def __init__(self, memory, address, size, va, page_bytes, pages, dma=0):
        self.memory, self.address, self.size, self.va = memory, address, size, va
        self.page_bytes, self.pages, self.dma = page_bytes, pages, dma

    def _pieces(self, offset, length):
        """Yield (address, bytes) within pages."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise InvalidValue(f"{length} bytes from {offset} on leave a buffer of {self.size} bytes")
        at, end = self.address + offset, self.address + offset + length
        while at < end:
            count = min(end - at, PAGE - at % PAGE)
            yield at, count
            at += count

    def physical(self, offset=0):
        number, at = divmod(offset, PAGE)
        return self.pages[number] + at

    def read(self, offset, length):
        return b"".join(self.memory.read(at, count) for at, count in self._pieces(offset, length))

    def write(self, offset, data):
        done = 0
        for at, count in self._pieces(offset, len(data)):
            self.memory.write(at, data[done : done + count])
            done += count


class ForeignRanges:
    """All ranges of other processes that a card has.

    Parameters
    ----------
    mapper
        Of :mod:`weft.driver.linux.mapper`, ``vfio`` or ``iommufd``.
    pages : callable(address, size, path)
        As :func:`~weft.driver.linux.mapper.physical_pages`.
    """

    def __init__(self, mapper, pages=physical_pages):
        self._mapper, self._physical = mapper, pages
        self._ranges = RangeAllocator((END - FIRST) // HUGE)
        self._buffers = {}

    def __len__(self):
        return len(self._buffers)

    def attach(self, memory, address, size, va, page_bytes):
        """Give the card pages of another process: see :meth:`weft.driver.device.device.Device.attach`.

        Raises
        ------
        OutOfResources, PyverbsRDMAError
        """
        if self._mapper.for_programs.method is MappingMethod.LOCKED:
            buffer = ForeignBuffer(memory, address, size, va, PAGE, self._pages_of(memory, address, size))
            self._buffers[buffer] = None
            return buffer
        lead = address % HUGE       # so that huge pages of the process are large pages of the IOMMU and the card
        taken = -(-(lead + size) // HUGE)
        try:
            dma = FIRST + self._ranges.alloc(taken) * HUGE + lead
        except MemoryError:
            raise OutOfResources(f"{size} bytes of a program: the card has no addresses for them") from None
        buffer = ForeignBuffer(memory, address, size, va, page_bytes, range(dma, dma + size, PAGE), dma)
        self._buffers[buffer] = taken
        return buffer

    def _pages_of(self, memory, address, size):
        pages = self._physical(address, size, f"/proc/{process_of(memory)}/pagemap")
        if not memory.exists:       # the pages may be those of a program that the process called by exec
            raise InvalidValue("the program has no memory any more")
        return pages

    def detach(self, buffer):
        """Release a buffer of :meth:`attach`, and unmap it if the process mapped it. May be repeated if it fails."""
        if self._buffers[buffer] is not None:
            try:
                self._mapper.unmap(buffer.dma, buffer.size)
            except OSError as error:
                if error.errno != errno.ENOENT:     # the process has not mapped it
                    raise
            self._ranges.free((buffer.dma - FIRST) // HUGE, self._buffers[buffer])
        del self._buffers[buffer]


def process_of(memory):
    """Return the number of the process whose ``/proc/self/mem`` a program passed.

    Raises
    ------
    InvalidValue
        If it has ended, or is in another PID namespace.
    """
    path = os.readlink(f"/proc/self/fd/{memory.fileno()}")
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(path), os.fstat(memory.fileno())):
            return int(path.split("/")[-2])
    raise InvalidValue("the process of the memory is not found: it has ended, or has another /proc")
