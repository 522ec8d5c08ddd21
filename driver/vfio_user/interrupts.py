"""Eventfds of the interrupts of a function."""

import errno
import os
from collections.abc import Callable, Mapping

from .dma import DmaError
from .event_signal import EventSignal, WriteSignal, event_signal

EVENTFD = "anon_inode:[eventfd]"


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
