"""Host memory: pages scattered over a physical address space, with unmapped gaps."""

import random

from weft.driver.device.attached import PAGE
from weft.driver.device.device import BufferView, DmaBuffer

from .frames import AccessError, AttachedRun, FrameRuns, FrameTable, PagesOf

__all__ = ["AccessError", "HostMemory", "MemoryBuffer"]
VA_START = 0x7F00_0000_0000
RUN = 16      # consecutive frames of attached pages of 4 KiB


class HostMemory:
    """Physical memory whose pages exist only while they are allocated.

    Parameters
    ----------
    seed : hashable
        Seed of the addresses of pages.
    physical_bits : int
        Size of the physical address space.
    """

    def __init__(self, seed=0, physical_bits=40):
        self._random = random.Random(f"memory {seed}")
        self._frames = 1 << physical_bits - 12
        self._pages = FrameTable()
        self._next_va = VA_START

    def _place(self, count, align, lead=0):
        """Return the first of ``count`` consecutive free frames, ``lead`` frames after a multiple of ``align``."""
        while not self._pages.free(first := self._draw(count, align, lead), count):
            pass
        return first

    def _draw(self, count, align, lead):
        """Return a random first frame for :meth:`_place`."""
        return self._random.randrange(1, (self._frames - count - lead) // align) * align + lead

    def _fill(self, first, count):
        """Put new pages into frames, and return their numbers."""
        frames = range(first, first + count)
        self._pages.update((frame, bytearray(PAGE)) for frame in frames)
        return frames

    def alloc(self, size, align, contiguous, page_bytes):
        """Return a new buffer: see :meth:`weft.driver.device.device.Device.alloc`."""
        pages = -(-max(size, 1) // PAGE)
        step = page_bytes // PAGE
        align_frames = max(1, -(-align // PAGE), step)
        if contiguous:
            frames = list(self._fill(self._place(pages, align_frames), pages))
        else:
            frames = [frame for _ in range(0, pages, step) for frame in self._fill(self._place(step, step), step)]
        return self._buffer(size, frames, align_frames * PAGE, page_bytes)

    def _buffer(self, size, frames, unit, page_bytes):
        """Return a buffer of these frames at new virtual addresses, which start at a multiple of ``unit``."""
        va = -(-self._next_va // unit) * unit
        self._next_va = va + len(frames) * PAGE + unit   # a gap after every buffer
        return MemoryBuffer(self, va, size, frames, page_bytes)

    def attach(self, memory, address, size, va, page_bytes):
        """Return a buffer of pages of another process: see :meth:`weft.driver.device.device.Device.attach`."""
        count, firsts = size // PAGE, []
        step, align = (page_bytes // PAGE, page_bytes // PAGE) if page_bytes > PAGE else (RUN, 1)
        lead = va // PAGE % align
        at = 0
        while at < count:
            ahead = lead if at == 0 else 0
            part = min(count - at, step - ahead)
            firsts.append(first := self._place(part, align, ahead))
            self._pages.attach(AttachedRun(first, part, memory, address + at * PAGE))
            at += part
        return AttachedBuffer(self, va, size, FrameRuns(firsts, count, step, lead), page_bytes)

    def detach(self, buffer):
        """Free a buffer of :meth:`attach`."""
        for first in buffer.frames.firsts:
            self._pages.detach(first)
        buffer.frames = buffer._pages = []

    def is_attached(self, address):
        """Return true if the page at a physical address belongs to another process."""
        return self._pages.is_attached(address // PAGE)

    def free(self, buffer):
        """Free a buffer of :meth:`alloc`."""
        for f in buffer.frames:
            del self._pages[f]
        buffer.frames = buffer._pages = []

    def _walk(self, physical, length):
        while length:
            page, at = self._pages[physical // PAGE], physical % PAGE
            n = min(length, PAGE - at)
            yield page, at, n
            physical, length = physical + n, length - n

    def read(self, physical, length):
        """Return the bytes at a physical address.

        Raises
        ------
        AccessError
        """
        at = physical % PAGE
        if 0 < length <= PAGE - at:    # the usual case
            return bytes(self._pages[physical // PAGE][at:at + length])
        return b"".join(bytes(page[at:at + n]) for page, at, n in self._walk(physical, length))

    def read_ahead(self, physical, length, most):
        """Return the bytes at a physical address, of another process also those that follow, up to ``most``.

        The kernel takes as long to begin a read of another process as to copy three pages.

        Raises
        ------
        AccessError, MemoryFault
        """
        run = self._pages.run_of(physical // PAGE) if most > length else None
        if run is not None:
            at = physical - run.first * PAGE
            data = run.memory.read(run.address + at, min(most, run.count * PAGE - at))
            if len(data) >= length:
                return data
        return self.read(physical, length)

    def write(self, physical, data):
        """Store bytes at a physical address.

        Raises
        ------
        AccessError
        """
        at, length = physical % PAGE, len(data)
        if 0 < length <= PAGE - at:
            self._pages[physical // PAGE][at:at + length] = data
            return
        done = 0
        for page, at, n in self._walk(physical, len(data)):
            page[at:at + n] = data[done:done + n]
            done += n


class MemoryBuffer(DmaBuffer):
    """Buffer of :class:`HostMemory`."""

    def __init__(self, memory, va, size, frames, page_bytes):
        self.memory, self.va, self.size, self.frames, self.page_bytes = memory, va, size, frames, page_bytes
        self._pages = self._listed(memory._pages, frames)

    @staticmethod
    def _listed(table, frames):
        return [table[frame] for frame in frames]

    def physical(self, offset=0):
        return self.frames[offset // PAGE] * PAGE + offset % PAGE

    def _pieces(self, offset, length):
        if offset < 0 or offset + length > self.size:
            raise ValueError(f"{length} bytes from {offset} on exceed a buffer of {self.size} bytes")
        while length:
            n = min(length, PAGE - offset % PAGE)
            yield self.physical(offset), n
            offset, length = offset + n, length - n

    def read(self, offset, length):
        at = offset % PAGE
        if 0 < length <= PAGE - at and 0 <= offset <= self.size - length:     # the usual case
            return bytes(self._pages[offset // PAGE][at : at + length])
        return b"".join(self.memory.read(p, n) for p, n in self._pieces(offset, length))

    def view(self, offset: int, length: int) -> memoryview | BufferView:
        at = offset % PAGE
        if (0 < length <= PAGE - at and 0 <= offset <= self.size - length
                and isinstance(page := self._pages[offset // PAGE], bytearray)):
            return memoryview(page)[at : at + length]
        return super().view(offset, length)

    def write(self, offset, data):
        at, length = offset % PAGE, len(data)
        if 0 < length <= PAGE - at and 0 <= offset <= self.size - length:
            self._pages[offset // PAGE][at : at + length] = data
            return
        data, done = bytes(data), 0
        for physical, n in self._pieces(offset, len(data)):
            self.memory.write(physical, data[done:done + n])
            done += n


class AttachedBuffer(MemoryBuffer):
    """Buffer of pages of another process."""

    _listed = staticmethod(PagesOf)
