"""Pages of a host by frame number; those of other processes are made at their first access."""

import bisect
from collections.abc import Sequence

from weft.driver.device.attached import PAGE, AttachedPage


class AccessError(AssertionError):
    """Access to memory that is not allocated."""


class AttachedRun:
    """Consecutive frames for a range of another process's memory.

    Parameters
    ----------
    first, count : int
        Frames.
    memory : ForeignMemory
    address : int
        Of the first page in ``memory``.

    Attributes
    ----------
    touched : list of int
        Frames whose pages were made.
    """

    __slots__ = ("address", "count", "first", "memory", "touched")

    def __init__(self, first, count, memory, address):
        self.first, self.count, self.memory, self.address, self.touched = first, count, memory, address, []


class FrameTable(dict):
    """Page by frame number. A subscript makes the :class:`AttachedPage` of an :class:`AttachedRun` if it is missing."""

    def __init__(self):
        super().__init__()
        self._firsts, self._runs = [], []      # sorted; runs do not overlap

    def run_of(self, frame):
        """Return the :class:`AttachedRun` that has a frame, or None."""
        at = bisect.bisect(self._firsts, frame) - 1
        return self._runs[at] if at >= 0 and frame < self._firsts[at] + self._runs[at].count else None

    def __missing__(self, frame):
        run = self.run_of(frame)
        if run is None:
            raise AccessError(f"access to the page at {frame * PAGE:#x}, which is not allocated")
        page = self[frame] = AttachedPage(run.memory, run.address + (frame - run.first) * PAGE)
        run.touched.append(frame)
        return page

    def is_attached(self, frame):
        """Return true if a frame belongs to another process."""
        return self.run_of(frame) is not None

    def free(self, first, count):
        """Return true if none of these frames is in use."""
        at = bisect.bisect_left(self._firsts, first + count) - 1
        if at >= 0 and self._firsts[at] + self._runs[at].count > first:
            return False
        return not any(frame in self for frame in range(first, first + count))

    def attach(self, run):
        at = bisect.bisect(self._firsts, run.first)
        self._firsts.insert(at, run.first)
        self._runs.insert(at, run)

    def detach(self, first):
        """Remove the run that begins at a frame."""
        at = bisect.bisect_left(self._firsts, first)
        for frame in self._runs[at].touched:
            del self[frame]
        del self._firsts[at], self._runs[at]

    @property
    def runs(self):
        """Number of attached runs."""
        return len(self._runs)


class FrameRuns(Sequence):
    """Frame numbers of consecutive pages in runs of ``step``, of which the first run begins ``lead`` pages late."""

    def __init__(self, firsts, count, step, lead):
        self.firsts, self._count, self._step, self._lead = firsts, count, step, lead

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        if not 0 <= index < self._count:
            raise IndexError(index)
        run, at = divmod(index + self._lead, self._step)
        return self.firsts[run] + at - (0 if run else self._lead)


class PagesOf(Sequence):
    """Pages of frames, looked up at each access."""

    def __init__(self, table, frames):
        self._table, self._frames = table, frames

    def __len__(self):
        return len(self._frames)

    def __getitem__(self, index):
        return self._table[self._frames[index]]
