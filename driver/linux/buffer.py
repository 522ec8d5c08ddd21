"""Pinned memory of this process."""

import ctypes

from ..device.device import DmaBuffer
from ..terms.errors import InvalidValue
from .libc import PAGE


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
