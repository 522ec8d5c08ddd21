"""Calls of the C library that Python has no name for."""

import ctypes
import os

PAGE = os.sysconf("SC_PAGE_SIZE")
MADV_DONTFORK, MADV_DOFORK = 10, 11
MAP_HUGETLB, HUGE_2M = 0x40000, 21 << 26     # mmap's flags; the size is log2 of it, shifted
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name, address, length, *more):
    if getattr(_libc, name)(ctypes.c_void_p(address), ctypes.c_size_t(length), *more):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def mlock(address, length):
    """Keep pages in memory. OSError says why not."""
    _call("mlock", address, length)


def munlock(address, length):
    """Do not any more."""
    _call("munlock", address, length)


def madvise(address, length, advice):
    """Tell the kernel what pages are for."""
    _call("madvise", address, length, ctypes.c_int(advice))
