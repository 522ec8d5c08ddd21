"""How a card addresses the memory of a process: the ways there are."""

import contextlib
import errno
import resource

from ..terms.errors import PyverbsRDMAError
from .libc import mlock, munlock
from .pagemap import physical_pages


class PhysicalMapper:
    """A card without an IOMMU, by UIO for instance: physical addresses of locked pages.

    The kernel may still move a locked page of 4 KiB to make room for huge ones: ``vm.compact_unevictable_allowed`` has
    to be 0, or memory to be of huge pages, which stay.
    """

    contiguous = False      # neighbours in virtual addresses are none in physical ones

    def __init__(self, pages=physical_pages):
        self._pages = pages

    def map(self, va, length):
        """Address of each page of a range of whole pages, which stay where they are until :meth:`unmap`."""
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
        """The card does not know the range any more."""
        with contextlib.suppress(OSError):      # the program may have given the memory back before
            munlock(va, length)

    def close(self):
        """Nothing is left to give back."""


def refused(what, va, length, error):
    """An error of the kernel's IOMMU interfaces, with a sentence."""
    reasons = {errno.ENOMEM: "; this process may lock too little memory (ulimit -l)",
               errno.EEXIST: "; part of it is mapped already",
               errno.EFAULT: "; it is no memory of this process",
               errno.EINVAL: "; the IOMMU has fewer address bits than the process"}
    return PyverbsRDMAError(f"{what} refused to map {length} bytes at {va:#x}: {error.strerror}"
                            + reasons.get(error.errno, ""), error.errno)
