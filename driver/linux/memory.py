"""Memory part of a :class:`~weft.driver.device.device.Device` on Linux, for back ends of real cards.

Allocated memory consists of 4 KiB pages, or of huge pages on request. With an IOMMU, the card uses virtual addresses,
and all memory is contiguous for it. Without one, contiguous memory larger than a page is allocated from a
:class:`~weft.driver.linux.region.Region`.
"""

import contextlib
import ctypes
import errno
import mmap
import os

from ..device.device import Buffers, DmaBuffer
from ..terms.checks import between
from ..terms.errors import InvalidValue, OutOfResources, PyverbsRDMAError
from .foreign import ForeignRanges
from .libc import PAGE
from .pieces import Pieces
from .region import HUGE, Region, address_of, map_huge

_LARGEST = 1 << 47


class LinuxBuffer(DmaBuffer):
    """Range of pinned memory.

    Parameters
    ----------
    va, size : int
    pages : dict of int to int
        Number of each page of 4 KiB -> its address for the card.
    page_bytes : int
    """

    def __init__(self, va, size, pages, page_bytes=PAGE):
        self.va, self.size, self.page_bytes, self.pages = va, size, page_bytes, pages
        self._view = memoryview((ctypes.c_char * size).from_address(va)).cast("B")

    def _check(self, offset, length):
        if offset < 0 or length < 0 or offset + length > self.size:
            raise InvalidValue(f"{length} bytes from {offset} on leave a buffer of {self.size} bytes")

    def physical(self, offset=0):
        self._check(offset, 1)
        number, at = divmod(self.va + offset, PAGE)
        return self.pages[number] + at

    def read(self, offset, length):
        self._check(offset, length)
        return bytes(self._view[offset : offset + length])

    def view(self, offset, length):
        self._check(offset, length)
        return self._view[offset : offset + length]

    def write(self, offset, data):
        self._check(offset, len(data))
        self._view[offset : offset + len(data)] = data

    def close(self):
        """Invalidate the buffer: it cannot be read or written any more."""
        self.size, self._view = 0, memoryview(b"")


class LinuxMemory:
    """Pinned memory of this process.

    Parameters
    ----------
    mapper
        Of :mod:`weft.driver.linux.mapper`, ``vfio`` or ``iommufd``.
    regions : iterable of Region
        Available contiguous memory, of u-dma-buf.
    """

    def __init__(self, mapper, regions=()):
        self.mapper = mapper
        self._pieces = Pieces(mapper, PAGE)
        self._given, self._regions = list(regions), []
        self._owned = Buffers()
        self._kept = {}      # buffer -> exit stack that frees it
        self._pins = {}      # buffer -> its pieces
        self._foreign = ForeignRanges(mapper)
        self.attach, self.detach = self._foreign.attach, self._foreign.detach

    # -------------------------------------------------------------------------------------- memory

    def alloc(self, size, *, align=64, contiguous=True, page_bytes=PAGE):
        """Allocate memory: see :meth:`weft.driver.device.device.Device.alloc`.

        Raises
        ------
        OutOfResources, PyverbsRDMAError
            The message names the missing resource.
        """
        between("size", size, 1, _LARGEST)
        if page_bytes not in (PAGE, HUGE):
            raise InvalidValue(f"page_bytes is {page_bytes}; {PAGE} and {HUGE} are possible")
        scattered = not contiguous or self.mapper.contiguous or size <= PAGE
        if page_bytes == PAGE and not scattered:
            return self._from_region(size, align)
        if not scattered and size > HUGE:
            raise OutOfResources(
                f"{size} contiguous bytes; without an IOMMU at most {HUGE}, a huge page, are possible")
        length = -(-size // page_bytes) * page_bytes
        slack = max(0, align - page_bytes)
        mapping = map_huge(length + slack) if page_bytes == HUGE else mmap.mmap(-1, length + slack)
        va = -(-address_of(mapping) // max(align, 1)) * max(align, 1)
        return self._own(va, size, mapping, page_bytes)

    def _own(self, va, size, mapping, page_bytes=PAGE):
        """Return a buffer of a mapping, which is closed with the buffer."""
        with contextlib.ExitStack() as back:
            back.callback(mapping.close)
            pieces = self._pieces.take(va, -(-size // page_bytes) * page_bytes)
            back.callback(self._pieces.release, pieces)
            return self._allocate(LinuxBuffer(va, size, _pages(pieces), page_bytes), back)

    def _allocate(self, buffer, back):
        self._owned.add(buffer)
        back.callback(buffer.close)
        back.callback(self._owned.remove, buffer)
        self._kept[buffer] = back.pop_all()
        return buffer

    def _from_region(self, size, align):
        for region in (*self._given, *self._regions):
            with contextlib.suppress(OutOfResources, MemoryError):
                return self._in_region(region, size, align)
        if size > HUGE:
            raise OutOfResources(f"{size} contiguous bytes; without an IOMMU at most {HUGE}, a huge page, are "
                                 "possible, or more in a u-dma-buf")
        mapping = map_huge(HUGE)
        try:
            pages = self.mapper.map(address_of(mapping), HUGE)
        except BaseException:
            mapping.close()
            raise
        self._regions.append(Region(mapping, pages[0]))
        return self._in_region(self._regions[-1], size, align)

    def _in_region(self, region, size, align):
        va = region.alloc(size, align)
        with contextlib.ExitStack() as back:
            back.callback(region.free, va, size)
            first, count = va // PAGE, -(-size // PAGE)
            start = region.physical + va - region.va
            pages = {first + n: start + n * PAGE for n in range(count)}
            buffer = self._allocate(LinuxBuffer(va, size, pages), back)
            buffer.write(0, bytes(size))
            return buffer

    def free(self, buffer):
        """Free a buffer of :meth:`alloc` or :meth:`map`."""
        self._kept.pop(buffer).close()

    def map(self, fd, offset, size):
        """Return pages of a file that other processes map as well, of ``memfd_create`` for instance, as a buffer.

        Raises
        ------
        InvalidValue, PyverbsRDMAError
        """
        between("size", size, 1, _LARGEST)
        between("offset", offset, 0, _LARGEST)
        try:
            if offset % PAGE or offset + size > os.fstat(fd).st_size:
                raise InvalidValue(f"{size} bytes from {offset} on are not whole pages of the {os.fstat(fd).st_size} "
                                   "bytes that the file has")
            mapping = mmap.mmap(fd, size, offset=offset)
        except OSError as error:
            raise PyverbsRDMAError(f"the file cannot be mapped for reading and writing: {error.strerror}",
                                   error.errno) from None
        return self._own(address_of(mapping), size, mapping)

    # ------------------------------------------------------------------------------ memory of the program

    def pin(self, address, length):
        """Pin memory of the program: see :meth:`weft.driver.device.device.Device.pin`.

        The same pages may be pinned repeatedly.

        Raises
        ------
        PyverbsRDMAError
        """
        between("length", length, 1, _LARGEST)
        with contextlib.suppress(PyverbsRDMAError):
            return self._pinned(address, length, self._owned.find(address, length))
        pieces = self._pieces.take(address, length)
        buffer = LinuxBuffer(address, length, _pages(pieces))
        self._pins[buffer] = pieces
        return buffer

    def _pinned(self, address, length, owner):
        """Return part of an allocated buffer, valid as long as that."""
        buffer = LinuxBuffer(address, length, owner.pages, owner.page_bytes)
        self._pins[buffer] = []
        return buffer

    def unpin(self, buffer):
        """Release a buffer of :meth:`pin`."""
        pieces = self._pins.pop(buffer)
        buffer.close()
        self._pieces.release(pieces)

    def buffer_at(self, va, length):
        """Return the buffer of a range: see :meth:`weft.driver.device.device.Device.buffer_at`."""
        for buffer in self._pins:
            if buffer.va <= va and va + length <= buffer.va + buffer.size:
                return buffer
        return self._owned.find(va, length)

    @property
    def pinned(self):
        """Number of page ranges that the card has, plus regions in use: 0 when everything is freed."""
        regions = (*self._given, *self._regions)
        return len(self._pieces) + len(self._foreign) + sum(not region.unused for region in regions)

    def close(self):
        """Release all memory. Requires that the card does not have it any more.

        Raises
        ------
        InvalidValue
            If buffers are in use.
        """
        if self._kept or self._pins or len(self._foreign):
            raise InvalidValue(f"{len(self._kept)} buffers and {len(self._pins) + len(self._foreign)} pinned ranges "
                               "are in use", errno.EBUSY)
        for region in self._regions:
            self.mapper.unmap(region.va, region.size)
        for region in (*self._regions, *self._given):
            region.mapping.close()
        self.mapper.close()


def _pages(pieces):
    return {piece.start // PAGE + number: page for piece in pieces for number, page in enumerate(piece.pages)}
