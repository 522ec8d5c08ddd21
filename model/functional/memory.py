"""Host memory: pages scattered over a physical address space, with unmapped gaps."""

import random

from weft.driver.device.attached import PAGE, attached_pages
from weft.driver.device.device import BufferView, DmaBuffer

VA_START = 0x7F00_0000_0000


class AccessError(AssertionError):
    """Access to memory that is not allocated."""


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
        self._pages = {}
        self._next_va = VA_START

    def _place(self, count, align, pages=None, lead=0):
        """Place ``pages``, or new pages, at free addresses; return the first frame number.

        The ``count`` frames are consecutive, and begin ``lead`` frames after a multiple of ``align`` frames.
        """
        while True:
            first = self._random.randrange(1, (self._frames - count - lead) // align) * align + lead
            frames = range(first, first + count)
            if not any(f in self._pages for f in frames):
                self._pages.update(zip(frames, pages or (bytearray(PAGE) for _ in frames), strict=True))
                return first

    def alloc(self, size, align, contiguous, page_bytes):
        pages = -(-max(size, 1) // PAGE)
        step = page_bytes // PAGE
        align_frames = max(1, -(-align // PAGE), step)
        if contiguous:
            first = self._place(pages, align_frames)
            frames = list(range(first, first + pages))
        else:
            frames = [f + k for _ in range(0, pages, step) for f in [self._place(step, step)] for k in range(step)]
        return self._buffer(size, frames, align_frames * PAGE, page_bytes)

    def _buffer(self, size, frames, unit, page_bytes):
        """Return a buffer of these frames at new virtual addresses, which start at a multiple of ``unit``."""
        va = -(-self._next_va // unit) * unit
        self._next_va = va + len(frames) * PAGE + unit   # a gap after every buffer
        return MemoryBuffer(self, va, size, frames, page_bytes)

    def attach(self, memory, address, size, va, page_bytes):
        """Return a buffer of pages of another process: see :meth:`weft.driver.device.device.Device.attach`."""
        pages, step, frames = attached_pages(memory, address, size), page_bytes // PAGE, []
        while len(frames) < len(pages):
            lead = (va // PAGE + len(frames)) % step
            part = pages[len(frames):len(frames) + step - lead]
            first = self._place(len(part), step, part, lead)
            frames += range(first, first + len(part))
        return MemoryBuffer(self, va, size, frames, page_bytes)

    def free(self, buffer):
        for f in buffer.frames:
            del self._pages[f]
        buffer.frames = buffer._pages = []

    def _walk(self, physical, length):
        while length:
            page = self._pages.get(physical // PAGE)
            if page is None:
                raise AccessError(f"access to {physical:#x}, which is not allocated")
            at = physical % PAGE
            n = min(length, PAGE - at)
            yield page, at, n
            physical, length = physical + n, length - n

    def read(self, physical, length):
        """Return the bytes at a physical address.

        Raises
        ------
        AccessError
        """
        page, at = self._pages.get(physical // PAGE), physical % PAGE
        if page is not None and length <= PAGE - at:    # the usual case
            return bytes(page[at:at + length])
        return b"".join(bytes(page[at:at + n]) for page, at, n in self._walk(physical, length))

    def write(self, physical, data):
        page, at, length = self._pages.get(physical // PAGE), physical % PAGE, len(data)
        if page is not None and length <= PAGE - at:
            page[at:at + length] = data
            return
        done = 0
        for page, at, n in self._walk(physical, len(data)):
            page[at:at + n] = data[done:done + n]
            done += n


class MemoryBuffer(DmaBuffer):
    """Buffer of :class:`HostMemory`."""

    def __init__(self, memory, va, size, frames, page_bytes):
        self.memory, self.va, self.size, self.frames, self.page_bytes = memory, va, size, frames, page_bytes
        self._pages = [memory._pages[frame] for frame in frames]

    def physical(self, offset=0):
        return self.frames[offset // PAGE] * PAGE + offset % PAGE

    def _pieces(self, offset, length):
        if offset < 0 or offset + length > self.size:
            raise ValueError(f"{length} bytes at offset {offset} of a buffer of {self.size}")
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
