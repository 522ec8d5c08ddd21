"""Memory that a program shares with the daemon.

What the daemon makes cannot shrink under it, and neither can what it takes from a program: who cut a file would end
the other one with a signal. Words are little-endian numbers of 32 bits at multiples of 4; each has one writer.
"""

import fcntl
import mmap
import os
import struct
import sys
import threading

from ..terms.errors import InvalidValue, NoRoom

_FORMATS = {8: "B", 16: "H", 32: "I", 64: "Q"}
_fence = threading.Lock()


def fence():
    """What was written before is seen by others before anything is read that comes behind: taking a lock says so to
    the processor."""
    with _fence:
        pass


def compiled(layout):
    """A ``struct.Struct`` of a layout of plain numbers, reserved fields left out: for what has to be fast."""
    parts = [_FORMATS[field.width] if not field.name.startswith("_") else f"{field.width // 8}x"
             for field in layout.fields]
    packed = struct.Struct("<" + "".join(parts))
    assert packed.size == layout.size_bytes
    return packed


def create(name, size):
    """A file of so many bytes that lies in memory, and its mapping.

    Raises
    ------
    NoRoom
    """
    file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(file, size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return file, mmap.mmap(file, size)
    except OSError as error:
        os.close(file)
        raise NoRoom(f"no {size} bytes for {name}: {error.strerror}") from None


def check_sealed(file, size):
    """Raise InvalidValue unless a program's file has ``size`` bytes and keeps them, on pages of any memory: huge ones
    are few, and who touches one that is not there gets a signal."""
    try:
        sealed = fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    except OSError:
        sealed = False
    if not sealed or os.fstat(file).st_size < size or os.fstatvfs(file).f_bsize != mmap.PAGESIZE:
        raise InvalidValue(f"a file of {size} bytes that cannot shrink is needed, and not of huge pages")


class Given:
    """A descriptor that is made for a program, and closed here when it was handed over."""

    def __init__(self, file):
        self._file = file

    def give(self):
        """The descriptor, once: whoever takes it closes it."""
        file, self._file = self._file, None
        return file

    def close(self):
        if self._file is not None:
            os.close(self.give())


def words_of(mapping):
    """The mapping as words."""
    if sys.byteorder != "little":
        raise NotImplementedError("rings are little-endian, and so have to be this machine's words")
    return memoryview(mapping).cast("I")
