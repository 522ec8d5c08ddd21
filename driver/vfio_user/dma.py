"""Memory of a client that a function may access: DMA ranges, in files that the client shares.

A client may shrink a file that it shared, or have sent any other kind of file. Neither may stop the server: a file is
mapped only if it is sealed against shrinking, as those of QEMU's ``memory-backend-memfd`` are. Other files of shared
memory are read and written by system calls. All other files are rejected, since they may block.
"""

import bisect
import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from .messages import MAPS_MAX, PAGE, READABLE, WRITEABLE

SHARED_FILES_MAX = 64
FILE_BYTES_MAX = 1 << 42
ADDRESSES = 1 << 64
WORD = 8
LINE = 64
_GET_SEALS, _SEAL_SHRINK = 1034, 2      # F_GET_SEALS and F_SEAL_SHRINK of linux/fcntl.h


class DmaError(OSError):
    """A DMA_MAP or DMA_UNMAP is impossible."""

    def __init__(self, code: int) -> None:
        super().__init__(code, os.strerror(code))


class Unmapped(Exception):
    """Access to an address without memory, or without the permission."""


def seals_of(file: int) -> int:
    """Return the seals of a file of shared memory. Raise :class:`DmaError` for other files."""
    try:
        return fcntl.fcntl(file, _GET_SEALS)
    except OSError:
        raise DmaError(errno.EINVAL) from None


class SharedFile:
    """File of a client, mapped or accessed by system calls. It owns its descriptor, and counts its ranges.

    Parameters
    ----------
    file : int
        Descriptor; it stays the caller's if the file is rejected.
    least : int
        Bytes that the file must have.

    Raises
    ------
    DmaError
        EINVAL if it is not shared memory or too short, ENOMEM if it cannot be mapped.
    """

    def __init__(self, file: int, least: int) -> None:
        self.file, self.users = file, 0
        self.mapping: mmap.mmap | None = None
        seals = seals_of(file)
        status = os.fstat(file)         # after the seals: a client cannot make a sealed file shorter any more
        writeable = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
        if not stat.S_ISREG(status.st_mode) or not writeable or not least <= status.st_size <= FILE_BYTES_MAX:
            raise DmaError(errno.EINVAL)
        if seals & _SEAL_SHRINK and status.st_size:
            try:
                self.mapping = mmap.mmap(file, status.st_size)
            except (OSError, OverflowError):
                raise DmaError(errno.ENOMEM) from None
            os.close(file)          # the mapping has another descriptor

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes; raise :class:`Unmapped` if the file has become shorter."""
        if self.mapping is not None:
            return self.mapping[offset : offset + length]
        data = os.pread(self.file, length, offset)
        if len(data) != length:
            raise Unmapped(f"a shared file ends before {offset + length:#x}")
        return data

    def write(self, offset: int, data: bytes) -> None:
        """Store bytes. The first word of a line is stored last: it has the phase bit, for which the driver waits."""
        if WORD < len(data) <= LINE:
            self._store(offset + WORD, data[WORD:])
            data = data[:WORD]
        self._store(offset, data)

    def _store(self, offset: int, data: bytes) -> None:
        if self.mapping is not None:
            self.mapping[offset : offset + len(data)] = data
        elif offset + len(data) > os.fstat(self.file).st_size:
            raise Unmapped(f"a shared file ends before {offset + len(data):#x}")
        else:
            try:
                os.pwrite(self.file, data, offset)
            except OSError as error:
                raise Unmapped(f"a shared file cannot be written: {error.strerror}") from None

    def close(self) -> None:
        if self.mapping is not None:
            self.mapping.close()
        else:
            os.close(self.file)


class Range(NamedTuple):
    """DMA range; ``shared`` is None if the client shares no descriptor of it."""

    size: int
    flags: int
    offset: int
    shared: SharedFile | None


class DmaMap:
    """Ranges by DMA address. They do not overlap.

    A file is opened once per connection, however many ranges are in it: each DMA_MAP brings another descriptor of it. A
    range without descriptor could be accessed by messages only, which this server does not send: it is not memory.

    Attributes
    ----------
    limit : int
        Largest number of ranges.
    """

    def __init__(self) -> None:
        self.limit = MAPS_MAX
        self._starts: list[int] = []
        self._ranges: list[Range] = []                              # in the same order
        self._files: dict[tuple[int, int], SharedFile] = {}         # by device and inode

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def files(self) -> int:
        """Number of shared files."""
        return len(self._files)

    def add(self, address: int, size: int, offset: int, flags: int, file: int | None) -> None:
        """Add a range, and own ``file``.

        Raises
        ------
        DmaError
            EEXIST if it overlaps another one, EINVAL for impossible values, ENOSPC beyond a limit, ENOMEM. Nothing is
            changed, and the file stays the caller's.
        """
        first = self._check(address, size, offset, flags)
        shared = None if file is None else self._shared(file, offset + size)
        if shared is not None:
            shared.users += 1
        self._starts.insert(first, address)
        self._ranges.insert(first, Range(size, flags, offset, shared))

    def _check(self, address: int, size: int, offset: int, flags: int) -> int:
        """Return the place of a new range in the order."""
        if not size or (address | size | offset) % PAGE or address + size > ADDRESSES \
                or not 0 < flags <= READABLE | WRITEABLE:
            raise DmaError(errno.EINVAL)
        if len(self) >= self.limit:
            raise DmaError(errno.ENOSPC)
        at = bisect.bisect_left(self._starts, address + size)
        if at and self._starts[at - 1] + self._ranges[at - 1].size > address:
            raise DmaError(errno.EEXIST)
        return at

    def _shared(self, file: int, end: int) -> SharedFile:
        """Return the shared file of a descriptor, which is closed if the file is known."""
        seals_of(file)      # first: for another kind of file, even fstat may block
        status = os.fstat(file)
        key = status.st_dev, status.st_ino
        if (known := self._files.get(key)) is not None:
            # A mapped file may have grown since.
            if end > (status.st_size if known.mapping is None else len(known.mapping)):
                raise DmaError(errno.EINVAL)
            os.close(file)
            return known
        if len(self._files) >= SHARED_FILES_MAX:
            raise DmaError(errno.ENOSPC)
        made = self._files[key] = SharedFile(file, end)
        return made

    def remove(self, address: int, size: int) -> int:
        """Remove all ranges inside of a range, and return their number.

        The specification requires the range of a DMA_MAP. QEMU unmaps several at once, and ranges without any.

        Raises
        ------
        DmaError
            EINVAL if a range is inside in part. Nothing is changed.
        """
        first, end = bisect.bisect_left(self._starts, address), bisect.bisect_left(self._starts, address + size)
        if first < end and self._starts[end - 1] + self._ranges[end - 1].size > address + size \
                or first and self._starts[first - 1] + self._ranges[first - 1].size > address and size:
            raise DmaError(errno.EINVAL)
        removed = self._ranges[first:end]
        del self._starts[first:end], self._ranges[first:end]
        for each in removed:
            self._release(each.shared)
        return len(removed)

    def _release(self, shared: SharedFile | None) -> None:
        if shared is None:
            return
        shared.users -= 1
        if not shared.users:
            self._files = {key: each for key, each in self._files.items() if each is not shared}
            shared.close()

    def _pieces(self, address: int, length: int, flag: int) -> Iterator[tuple[SharedFile, int, int]]:
        """Yield (file, offset, length) of a range of addresses. Neighbours may be anywhere in the client's memory."""
        while length:
            at = bisect.bisect(self._starts, address) - 1
            inside = address - self._starts[at] if at >= 0 else 0
            if at < 0 or inside >= self._ranges[at].size:
                raise Unmapped(f"there is no memory at {address:#x}")
            size, flags, offset, shared = self._ranges[at]
            if shared is None or not flags & flag:
                raise Unmapped(f"the memory at {address:#x} is not accessible in this way")
            count = min(length, size - inside)
            yield shared, offset + inside, count
            address, length = address + count, length - count

    def read(self, address: int, length: int) -> bytes:
        """Return bytes. Raise :class:`Unmapped` if part of them is not accessible."""
        return b"".join(shared.read(at, count) for shared, at, count in self._pieces(address, length, READABLE))

    def write(self, address: int, data: bytes) -> None:
        """Write bytes. Raise :class:`Unmapped` and write nothing if part of the range is not accessible."""
        done = 0
        for shared, at, count in list(self._pieces(address, len(data), WRITEABLE)):
            shared.write(at, data[done : done + count])
            done += count

    def clear(self) -> None:
        """Remove all ranges."""
        self.remove(0, ADDRESSES)
