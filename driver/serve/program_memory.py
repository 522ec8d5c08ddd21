"""Memory of programs: files that they share, and regions made of pieces of files."""

from ..device.device import DmaBuffer
from ..ibverbs.rings import Limit
from ..terms.errors import InUse, InvalidValue
from .shared_memory import check_sealed

PAGE = 4096


class SharedFile:
    """Pages of a program that the card may use.

    Attributes
    ----------
    users : int
        Number of regions that have a piece of the file.
    """

    def __init__(self, device, file, size):
        if not 0 < size <= Limit.FILE_BYTES or size % PAGE:
            raise InvalidValue(f"{size} bytes are no whole pages, or too many")
        check_sealed(file, size)
        self.device, self.size, self.users = device, size, 0
        self.buffer = device.map(file, 0, size)

    def close(self):
        if self.users:
            raise InUse(f"{self.users} memory regions use the file")
        self.device.free(self.buffer)


class Pieces(DmaBuffer):
    """Range of a program's addresses, made of pieces of files.

    Parameters
    ----------
    va : int
        Address of the first page.
    pieces : list of (SharedFile, offset, length)
        Whole pages.
    """

    def __init__(self, va, pieces):
        self.va, self._pieces, self._starts, self.size = va, pieces, [], 0
        for file, offset, length in pieces:
            if offset % PAGE or length % PAGE or not 0 <= offset < offset + length <= file.size:
                raise InvalidValue(f"{length} bytes from {offset} on are no whole pages of a file of {file.size} bytes")
            self._starts.append(self.size)
            self.size += length
        self.page_bytes = self._page_bytes()

    def _page_bytes(self):
        """Return the page size: large if all files have large pages and the addresses are aligned like the files."""
        large, va = max((file.buffer.page_bytes for file, _, _ in self._pieces), default=PAGE), self.va
        for number, (file, offset, length) in enumerate(self._pieces):
            if file.buffer.page_bytes < large or (va - offset) % large or number and va % large:
                return PAGE
            va += length
        return large

    def use(self, more):
        """Add ``more`` to the number of users of each file."""
        for file, _, _ in self._pieces:
            file.users += more

    def _parts(self, offset, length):
        """Yield ``(file, offset in the file, bytes)`` for each part of a range."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise InvalidValue(f"{length} bytes from {offset} on leave a buffer of {self.size} bytes")
        for (file, at, size), start in zip(self._pieces, self._starts, strict=True):
            first, end = max(offset, start), min(offset + length, start + size)
            if first < end:
                yield file, at + first - start, end - first

    def physical(self, offset=0):
        file, at, _ = next(self._parts(offset, 1))
        return file.buffer.physical(at)

    def read(self, offset, length):
        return b"".join(file.buffer.read(at, n) for file, at, n in self._parts(offset, length))

    def write(self, offset, data):
        done = 0
        for file, at, n in self._parts(offset, len(data)):
            file.buffer.write(at, data[done : done + n])
            done += n
