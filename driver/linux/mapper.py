"""Mapping of a process's memory to addresses for the card: physical ones are those of /proc/self/pagemap."""

import contextlib
import errno
import os
import resource
import struct

from ..terms.errors import PyverbsRDMAError
from ..terms.program_mapping import MappingMethod, ProgramMapping
from .libc import PAGE, mlock, munlock

PATH = "/proc/self/pagemap"
_ENTRY = struct.Struct("=Q")
_PRESENT, _PFN = 1 << 63, (1 << 55) - 1


def physical_pages(va, length, path=PATH):
    """Return the physical address of each 4 KiB page of a locked range, in order.

    Raises
    ------
    PyverbsRDMAError
        EPERM if the kernel hides the addresses from this process, EFAULT if a page is not in memory.
    """
    first, end = va // PAGE, -(-(va + length) // PAGE)
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise PyverbsRDMAError(f"{path} cannot be read, so physical addresses are not known: {error.strerror}",
                               error.errno) from None
    try:
        data = os.pread(file, _ENTRY.size * (end - first), _ENTRY.size * first)
    finally:
        os.close(file)
    entries = [entry for entry, in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size])]
    pages = []
    for number, entry in enumerate(entries + [0] * (end - first - len(entries))):
        if not entry & _PRESENT:
            raise PyverbsRDMAError(f"the page at {(first + number) * PAGE:#x} is not in memory", errno.EFAULT)
        if not entry & _PFN:
            raise PyverbsRDMAError(f"{path} hides physical addresses from a process without CAP_SYS_ADMIN; run as "
                                   "root, or let the card have an IOMMU (VFIO)", errno.EPERM)
        pages.append((entry & _PFN) * PAGE)
    return pages


class PhysicalMapper:
    """Mapper for a card without an IOMMU, with UIO for instance: physical addresses of locked pages.

    The kernel may still move a locked page of 4 KiB to make space for huge pages. Therefore
    ``vm.compact_unevictable_allowed`` must be 0, or memory must consist of huge pages, which are not moved.
    """

    contiguous = False      # adjacent virtual pages are not adjacent in physical memory
    for_programs = ProgramMapping(MappingMethod.LOCKED)

    def __init__(self, pages=physical_pages):
        self._pages = pages

    def map(self, va, length):
        """Return the address of each page of a range of whole pages, which remain in place until :meth:`unmap`."""
        try:
            mlock(va, length)
        except OSError as error:
            limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
            raise PyverbsRDMAError(
                f"{length} bytes at {va:#x} cannot be locked in memory, of which this process may lock {limit} bytes "
                f"(ulimit -l): {error.strerror}", error.errno) from None
        try:
            return self._pages(va, length)
        except BaseException:
            munlock(va, length)
            raise

    def unmap(self, va, length):
        """Unlock a range. Requires that the card does not have it any more."""
        with contextlib.suppress(OSError):      # the program may have freed the memory before
            munlock(va, length)

    def close(self):
        """Do nothing: there are no resources."""


def refused(subject, va, length, error):
    """Return the exception for an error of the kernel's IOMMU interfaces."""
    reasons = {errno.ENOMEM: "; this process may lock too little memory (ulimit -l)",
               errno.ENOSPC: "; a card has dma_entry_limit maps at most (module vfio_iommu_type1)",
               errno.EEXIST: "; part of it is mapped already",
               errno.EFAULT: "; it is not memory of this process",
               errno.EINVAL: "; the IOMMU has fewer address bits than the process"}
    return PyverbsRDMAError(f"{subject} refused to map {length} bytes at {va:#x}: {error.strerror}"
                            + reasons.get(error.errno, ""), error.errno)
