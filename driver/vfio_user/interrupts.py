"""Eventfds of the interrupts of a function."""

import contextlib
import ctypes
import errno
import os
import platform
from collections.abc import Callable, Mapping

from weft.hdl.contract.layout import Field, Layout

from .dma import DmaError

_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}      # io_setup, _destroy, _getevents, _submit
_REQUESTS, _EVENT_BYTES = 8, 32
_RESFD = 1
_IOCB = Layout("iocb", "", [Field(*each) for each in (
    ("data", 64), ("key", 32), ("rw_flags", 32), ("opcode", 16), ("reqprio", 16), ("fildes", 32), ("buf", 64),
    ("nbytes", 64), ("offset", 64), ("_reserved", 64), ("flags", 32), ("resfd", 32))], size_bytes=64)
EVENTFD = "anon_inode:[eventfd]"


class EventSignal:
    """Adds 1 to eventfds and never blocks.

    ``O_NONBLOCK`` is a property of the file, which the process that shares the eventfd can change at any time: a write
    may block while the counter is full. The kernel itself adds to an eventfd without waiting when a request of Linux's
    asynchronous input ends (``IOCB_FLAG_RESFD`` of linux/aio_abi.h): here a read of ``/dev/zero``, which ends at once.

    Raises
    ------
    OSError
        If the kernel has no asynchronous input.
    """

    def __init__(self) -> None:
        if (calls := _CALLS.get(platform.machine())) is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        setup, self._destroy, self._get_events, self._submit = calls
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self._checked(setup, _REQUESTS, ctypes.byref(self._context))
        self._zero, self._byte = os.open("/dev/zero", os.O_RDONLY | os.O_CLOEXEC), ctypes.create_string_buffer(1)
        self._request = ctypes.create_string_buffer(_IOCB.size_bytes)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._ended = ctypes.create_string_buffer(_EVENT_BYTES * _REQUESTS)

    def _checked(self, number: int, *arguments: object) -> None:
        if self._call(number, *arguments) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def __call__(self, file: int) -> None:
        """Add 1 to an eventfd; a counter that is full stays as it is. An error of the kernel loses the signal."""
        self._request.raw = _IOCB.pack(fildes=self._zero, buf=ctypes.addressof(self._byte), nbytes=1, flags=_RESFD,
                                       resfd=file)
        if self._call(self._submit, self._context, ctypes.c_long(1), self._requests) == 1:
            self._call(self._get_events, self._context, ctypes.c_long(0), ctypes.c_long(_REQUESTS), self._ended,
                       None)

    def close(self) -> None:
        """Release the kernel's context."""
        self._call(self._destroy, self._context)
        os.close(self._zero)


class WriteSignal:
    """The same by a write, which a client can make block: for kernels without asynchronous input."""

    def __call__(self, file: int) -> None:
        os.set_blocking(file, False)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(file, 1)

    def close(self) -> None:
        return


def event_signal() -> EventSignal | WriteSignal:
    """Return the best that the kernel has."""
    try:
        return EventSignal()
    except OSError:
        return WriteSignal()


class Interrupts:
    """Eventfds by kind and number.

    Parameters
    ----------
    counts : dict of int to int
        Number of interrupts by kind.
    changed : callable()
        Called after a change.
    """

    def __init__(self, counts: Mapping[int, int], changed: Callable[[], object] = lambda: None) -> None:
        self.counts, self.changed = counts, changed
        self._files: dict[tuple[int, int], int] = {}
        self._signal: EventSignal | WriteSignal | None = None

    def __len__(self) -> int:
        return len(self._files)

    def assign(self, kind: int, start: int, count: int, files: list[int]) -> None:
        """Set the eventfds of interrupts, and take them out of ``files``; an empty list releases those interrupts.

        Raises
        ------
        DmaError
            EINVAL if there are no such interrupts, or if a file is not an eventfd. Nothing is changed.
        """
        if start + count > self.counts.get(kind, 0) or files and len(files) != count \
                or any(os.readlink(f"/proc/self/fd/{file}") != EVENTFD for file in files):
            raise DmaError(errno.EINVAL)
        for number in range(start, start + count):
            self._close((kind, number))
            if files:
                self._files[kind, number] = files.pop(0)
        self.changed()

    def release(self, kind: int) -> None:
        """Release all interrupts of a kind."""
        for key in [key for key in self._files if key[0] == kind]:
            self._close(key)

    def _close(self, key: tuple[int, int]) -> None:
        if (file := self._files.pop(key, None)) is not None:
            os.close(file)

    def signal(self, kind: int, number: int) -> bool:
        """Signal an interrupt; return false if it has no eventfd."""
        file = self._files.get((kind, number))
        if file is None:
            return False
        if self._signal is None:
            self._signal = event_signal()
        self._signal(file)
        return True

    def close(self) -> None:
        """Close all eventfds."""
        for key in list(self._files):
            self._close(key)
        if self._signal is not None:
            self._signal.close()
            self._signal = None
