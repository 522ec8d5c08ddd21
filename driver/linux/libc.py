"""Calls of the C library that Python does not provide."""

import ctypes
import os

PAGE = os.sysconf("SC_PAGE_SIZE")
MADV_DONTFORK, MADV_DOFORK = 10, 11
MAP_HUGETLB, HUGE_2M = 0x40000, 21 << 26     # flags of mmap; the second is the shifted log2 of the size
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name, address, length, *more):
    if getattr(_libc, name)(ctypes.c_void_p(address), ctypes.c_size_t(length), *more):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def mlock(address, length):
    """Lock pages in memory. Raise OSError on failure."""
    _call("mlock", address, length)


def munlock(address, length):
    """Unlock pages."""
    _call("munlock", address, length)


def madvise(address, length, advice):
    """Set the advice of pages for the kernel."""
    _call("madvise", address, length, ctypes.c_int(advice))
