"""Memory of a simulated host: scattered physical pages; accesses elsewhere fail."""

from cocotbext.axi import Region

from weft.driver.device.attached import MemoryFault
from weft.driver.device.device import DmaBuffer
from weft.hdl.contract import abi
from weft.model.card.host import WatchedMemory
from weft.model.functional.memory import PAGE, VA_START, MemoryBuffer

LOW = (0x1000_0000, 0x4000_0000)   # base, bytes: reached with 32-bit addresses
HIGH = (1 << 40, 1 << 36)          # reached with 64-bit addresses only


class _Area(Region):
    """Range of the host's physical addresses, backed by :class:`HostMemory`."""

    def __init__(self, memory, base, size):
        super().__init__(size)
        self._memory, self._start = memory.dma(), base

    async def _read(self, address, length, **_):
        return self._memory.read(self._start + address, length)

    async def _write(self, address, data, **_):
        self._memory.write(self._start + address, bytes(data))


class HostMemory(WatchedMemory):
    """Pages at random physical addresses, below and above 4 GiB.

    An access to memory that is not allocated raises an exception, which the root complex turns into an error
    completion and a warning. The neighbouring pages of an allocation are almost always free, so that a DMA beyond the
    end of a buffer is detected. New pages are in the tuple ``areas``: :data:`LOW`, :data:`HIGH` or both.
    """

    def __init__(self, root_complex, rng):
        super().__init__()
        self._random = rng
        self.areas = (LOW, HIGH)
        self._next_va = VA_START + rng.randrange(1 << 12) * abi.PAGE_2M
        root_complex.mem_pool.register_region(_Area(self, *LOW), *LOW)
        root_complex.mem_address_space.register_region(_Area(self, *HIGH), *HIGH)

    @property
    def pages(self):
        """Return the number of allocated pages; attached ones that were not accessed count once for each run."""
        return len(self._pages) + self._pages.runs

    def absent(self, address, length):
        """Return true if bytes within a page belong to another process, which does not have them any more."""
        try:
            return self.is_attached(address) and not self.read(address, length)
        except MemoryFault:
            return True

    def _draw(self, count, align, lead):
        base, size = self._random.choice(self.areas)
        return base // PAGE + self._random.randrange((size // PAGE - count - lead) // align) * align + lead


class HostBuffer(MemoryBuffer):
    """Physically contiguous buffer that begins ``start`` bytes after the beginning of its first page."""

    def __init__(self, memory, va, size, frames, page_bytes, start):
        super().__init__(memory, va + start, size, frames, page_bytes)
        self._start = frames[0] * PAGE + start

    def physical(self, offset=0):
        if not 0 <= offset < max(self.size, 1):
            raise ValueError(f"offset {offset} is outside a buffer of {self.size} bytes")
        return self._start + offset

    def read(self, offset, length):
        return b"".join(self.memory.read(address, n) for address, n in self._pieces(offset, length))

    def write(self, offset, data):
        for address, n in self._pieces(offset, len(data)):
            self.memory.write(address, data[:n])
            data = data[n:]

    view = DmaBuffer.view
