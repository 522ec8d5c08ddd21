"""Physical addresses of this process: /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst)."""

import errno
import os
import struct

from ..terms.errors import PyverbsRDMAError
from .libc import PAGE

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
