"""Pages of another process for a simulated card."""

from typing import Protocol

PAGE = 4096


class MemoryFault(Exception):
    """Read of memory that another process does not have any more."""


class ForeignMemory(Protocol):
    """Memory of another process."""

    def read(self, address: int, length: int) -> bytes:
        """Return bytes up to the first page that is missing, or raise :class:`MemoryFault` if that is the first one."""

    def write(self, address: int, data: bytes) -> None:
        """Write bytes within a page, unless it is missing."""


class AttachedPage:
    """Page with the slices of a ``bytearray``."""

    __slots__ = ("_address", "_memory")

    def __init__(self, memory: ForeignMemory, address: int) -> None:
        self._memory, self._address = memory, address

    def __getitem__(self, part: slice) -> bytes:
        return self._memory.read(self._address + part.start, part.stop - part.start)

    def __setitem__(self, part: slice, data: bytes) -> None:
        self._memory.write(self._address + part.start, data)
