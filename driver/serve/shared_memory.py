"""Memory that a program shares with the daemon.

Its files are sealed against shrinking: an access to a page that was cut off raises a signal. Words are little-endian
numbers of 32 bits at multiples of 4; each has one writer.

The words of the library are C atomics with acquire and release. Python has none: here a word is one plain load or store
of the processor. On x86 loads acquire and stores release already, and only a load after a store to another word needs a
:func:`fence`. On processors with weaker ordering, :func:`ordered` is a fence between the slots of a ring and its
indices.
"""

import collections
import ctypes
import fcntl
import functools
import mmap
import os
import platform
import struct
import sys
import threading

from ..terms.errors import OutOfResources

_FORMATS = {8: "B", 16: "H", 32: "I", 64: "Q"}
_fence = threading.Lock()
_SEQ_CST = 5
IN_ORDER = platform.machine() in ("x86_64", "AMD64", "i686", "i386")     # loads in order, stores in order


def fence():
    """Make all earlier writes visible before any later read.

    On an x86 processor, acquiring a lock is a full fence. Elsewhere a lock lets some accesses pass, so the fence of the
    C library is used.
    """
    if IN_ORDER:
        with _fence:
            pass
    else:
        _fence_of_c()(_SEQ_CST)


def ordered():
    """Order all earlier reads and writes before the later ones."""
    if not IN_ORDER:
        fence()


@functools.cache
def _fence_of_c():
    """Return ``atomic_thread_fence`` as a function.

    Raises
    ------
    NotImplementedError
        If its library is missing.
    """
    try:
        return ctypes.CDLL("libatomic.so.1").atomic_thread_fence
    except OSError:
        sentence = "rings need fences on this processor; on Debian: apt-get install libatomic1"
        raise NotImplementedError(sentence) from None


def compiled(layout):
    """Return a fast ``struct.Struct`` of a layout of plain numbers, without its reserved fields."""
    parts = [_FORMATS[field.width] if not field.name.startswith("_") else f"{field.width // 8}x"
             for field in layout.fields]
    packed = struct.Struct("<" + "".join(parts))
    assert packed.size == layout.size_bytes
    return packed


def reader(layout):
    """Return a fast ``unpack`` of a layout, if it consists of plain numbers, else its own."""
    if any(field.enum or field.name[0] != "_" and field.width not in _FORMATS for field in layout.fields):
        return layout.unpack
    unpack = compiled(layout).unpack_from
    names = [field.name for field in layout.fields if field.name[0] != "_"]
    made = collections.namedtuple(layout.name, names)._make
    return lambda data: made(unpack(data))


def writer(layout):
    """Return a fast function from fields, as a dict, to the bytes of a layout."""
    if any(field.name[0] != "_" and field.width not in _FORMATS for field in layout.fields):
        return lambda values: layout.pack(**values)
    pack = compiled(layout).pack
    names = [field.name for field in layout.fields if field.name[0] != "_"]
    return lambda values: (pack(*[values[name] for name in names]) if len(values) == len(names)
                           else layout.pack(**values))


def create(name, size):
    """Return a new file of ``size`` bytes in memory, and its mapping.

    Raises
    ------
    OutOfResources
    """
    file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(file, size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return file, mmap.mmap(file, size)
    except OSError as error:
        os.close(file)
        raise OutOfResources(f"no {size} bytes for {name}: {error.strerror}") from None


class OwnedDescriptor:
    """Descriptor for a program; :meth:`close` closes it unless it was handed over."""

    def __init__(self, file):
        self._file = file

    def release(self):
        """Return the descriptor, once; the caller closes it."""
        file, self._file = self._file, None
        return file

    def close(self):
        if self._file is not None:
            os.close(self.release())


def words_of(mapping):
    """Return the mapping as words."""
    if sys.byteorder != "little":
        raise NotImplementedError("rings are little-endian, and so have to be this machine's words")
    return memoryview(mapping).cast("I")
