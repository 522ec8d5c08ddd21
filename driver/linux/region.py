"""Contiguous memory for a card without an IOMMU: huge pages, or u-dma-buf."""

import ctypes
import errno
import mmap
import os
from pathlib import Path

from ..device.page_table import RangeAllocator
from ..terms.errors import InvalidValue, OutOfResources, PyverbsRDMAError
from .libc import HUGE_2M, MAP_HUGETLB, PAGE

HUGE = 2 << 20
HUGE_STATE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
U_DMA_BUF = Path("/sys/class/u-dma-buf")


def address_of(mapping):
    """Return the virtual address of an ``mmap``, which is valid until it is closed."""
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def map_huge(size):
    """Return huge pages for ``size`` bytes as an ``mmap``.

    Raises
    ------
    OutOfResources
        With the number of free huge pages.
    """
    size = -(-size // HUGE) * HUGE
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB | HUGE_2M)
    except OSError as error:
        try:
            free = (HUGE_STATE / "free_hugepages").read_text().strip()
        except OSError:
            free = "no"
        raise OutOfResources(f"{size // HUGE} huge pages of 2 MiB are needed, {free} are free ({error.strerror}); "
                             f"root reserves them by a number in {HUGE_STATE / 'nr_hugepages'}") from None


class Region:
    """Contiguous memory that is allocated in pages.

    Parameters
    ----------
    mapping : mmap.mmap
    physical : int
        Address of the first byte for the card.
    """

    def __init__(self, mapping, physical):
        self.mapping, self.va, self.physical, self.size = mapping, address_of(mapping), physical, len(mapping)
        self._pages = RangeAllocator(self.size // PAGE)

    @property
    def unused(self):
        return self._pages.free_total == self.size // PAGE

    def alloc(self, size, align):
        """Return the virtual address of ``size`` free bytes. Raise OutOfResources if there is no such range."""
        if align > PAGE and align > (self.va | self.physical) & -(self.va | self.physical):
            raise OutOfResources(f"an alignment of {align} bytes")
        more = max(0, align // PAGE - 1)
        count = -(-size // PAGE)
        first = self._pages.alloc(count + more)
        aligned = -(-first * PAGE // max(align, PAGE)) * max(align, PAGE) // PAGE
        if aligned > first:
            self._pages.free(first, aligned - first)
        if first + more > aligned:
            self._pages.free(aligned + count, first + more - aligned)
        return self.va + aligned * PAGE

    def free(self, va, size):
        self._pages.free((va - self.va) // PAGE, -(-size // PAGE))

    def __contains__(self, va):
        return self.va <= va < self.va + self.size


def u_dma_bufs():
    """Return the first u-dma-buf of this machine as the only :class:`Region` of a list, or an empty list.

    Raises
    ------
    PyverbsRDMAError
    """
    return [open_u_dma_buf()] if any(U_DMA_BUF.glob("*")) else []


def open_u_dma_buf(name=None, *, listed=U_DMA_BUF, devices=Path("/dev")):
    """Return the :class:`Region` of a u-dma-buf, by default of the first one.

    Raises
    ------
    PyverbsRDMAError
    """
    names = sorted(path.name for path in listed.glob("*")) if name is None else [name]
    if not names or not (listed / names[0]).exists():
        raise PyverbsRDMAError(f"there is no u-dma-buf in {listed}: is its kernel module loaded?", errno.ENODEV)
    entry = listed / names[0]
    size, physical = int((entry / "size").read_text(), 0), int((entry / "phys_addr").read_text(), 0)
    if physical % PAGE or size < PAGE:
        raise InvalidValue(f"{entry} states {size} bytes at {physical:#x}, which are not pages")
    try:
        file = os.open(devices / names[0], os.O_RDWR | os.O_SYNC)
    except OSError as error:
        raise PyverbsRDMAError(f"{devices / names[0]} cannot be opened: {error.strerror}", error.errno) from None
    try:
        return Region(mmap.mmap(file, size // PAGE * PAGE), physical)
    finally:
        os.close(file)
