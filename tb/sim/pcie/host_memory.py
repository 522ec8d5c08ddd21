"""Memory of a simulated host: scattered physical pages; accesses elsewhere fail."""

from cocotbext.axi import Region

from weft.driver.device.attached import AttachedPage, MemoryFault
from weft.driver.device.device import DmaBuffer

PAGE_BYTES = 4096
LOW = (0x1000_0000, 0x4000_0000)   # base, bytes: reached with 32-bit addresses
HIGH = (1 << 40, 1 << 36)          # reached with 64-bit addresses only


class _Area(Region):
    """Range of the host's physical addresses, backed by :class:`HostMemory`."""

    def __init__(self, memory, base, size):
        super().__init__(size)
        self._memory, self._start = memory, base

    async def _read(self, address, length, **_):
        return self._memory.read(self._start + address, length)

    async def _write(self, address, data, **_):
        for watcher in self._memory.dma_watchers:
            watcher(self._start + address, len(data))
        self._memory.write(self._start + address, data)
        for tap in self._memory.dma_taps:
            tap(self._start + address, bytes(data))


class HostMemory:
    """Pages at random physical addresses, below and above 4 GiB.

    An access to memory that is not allocated raises an exception, which the root complex turns into an error
    completion and a warning. The neighbouring pages of an allocation are almost always free, so that a DMA beyond the
    end of a buffer is detected.

    Parameters
    ----------
    root_complex : RootComplex
        The memory is registered in its address space.
    rng : random.Random
        Source of page addresses.

    Attributes
    ----------
    dma_watchers : list of callable(address, length)
        Called for every DMA write before it takes effect.
    dma_taps : list of callable(address, data)
        Called for every DMA write after it has taken effect.
    """

    def __init__(self, root_complex, rng):
        self._rng = rng
        self.dma_watchers, self.dma_taps = [], []
        self._pages = {}  # page number → memoryview of 4 KiB, or page of another process
        base, size = LOW
        root_complex.mem_pool.register_region(_Area(self, base, size), base, size)
        base, size = HIGH
        root_complex.mem_address_space.register_region(_Area(self, base, size), base, size)

    @property
    def pages(self):
        """Return the number of allocated pages."""
        return len(self._pages)

    def allocate(self, size, align=PAGE_BYTES, areas=(LOW, HIGH), page=None):
        """Allocate ``size`` contiguous bytes and return their physical address.

        The bytes are zeros, or those of ``page``, which has the slices of a memoryview of 4 KiB. ``size`` and ``align``
        are multiples of 4 KiB.
        """
        while True:
            base, area = self._rng.choice(areas)
            address = base + self._rng.randrange((area - size) // align) * align
            numbers = range(address // PAGE_BYTES, (address + size) // PAGE_BYTES)
            if not any(number in self._pages for number in numbers):
                break
        block = memoryview(bytearray(size)) if page is None else None
        for index, number in enumerate(numbers):
            self._pages[number] = page or block[index * PAGE_BYTES:(index + 1) * PAGE_BYTES]
        return address

    def release(self, address, size):
        """Free an allocation of :meth:`allocate`."""
        for number in range(address // PAGE_BYTES, (address + size) // PAGE_BYTES):
            del self._pages[number]

    def absent(self, address, length):
        """Return true if bytes within a page belong to another process, which does not have them any more."""
        page = self._pages.get(address // PAGE_BYTES)
        try:
            return isinstance(page, AttachedPage) and not self.read(address, length)
        except MemoryFault:
            return True

    def _pieces(self, address, length):
        while length:
            number, offset = divmod(address, PAGE_BYTES)
            if number not in self._pages:
                raise PermissionError(f"no memory at {address:#x}")
            n = min(length, PAGE_BYTES - offset)
            yield self._pages[number], offset, n
            address, length = address + n, length - n

    def read(self, address, length):
        return b"".join(page[at:at + n] for page, at, n in self._pieces(address, length))

    def write(self, address, data):
        done = 0
        for page, at, n in self._pieces(address, len(data)):
            page[at:at + n] = data[done:done + n]
            done += n


class HostBuffer(DmaBuffer):
    """A :class:`~weft.driver.device.device.DmaBuffer` in :class:`HostMemory`.

    ``blocks`` are ``(physical address, bytes)`` of whole pages, each ``piece_bytes`` long; the buffer starts
    ``offset`` bytes into the first one.
    """

    def __init__(self, memory, va, size, page_bytes, blocks, offset=0):
        self.va, self.size, self.page_bytes = va, size, page_bytes
        self.blocks = blocks
        self._memory, self._offset, self._piece_bytes = memory, offset, blocks[0][1]

    def physical(self, offset=0):
        if not 0 <= offset < max(self.size, 1):
            raise ValueError(f"offset {offset} is outside a buffer of {self.size} bytes")
        index, within = divmod(self._offset + offset, self._piece_bytes)
        return self.blocks[index][0] + within

    def _pieces(self, offset, length):
        if offset < 0 or length < 0 or offset + length > self.size:
            raise ValueError(f"{length} bytes at {offset} are outside a buffer of {self.size} bytes")
        while length:
            here = min(length, self._piece_bytes - (self._offset + offset) % self._piece_bytes)
            yield self.physical(offset), here
            offset, length = offset + here, length - here

    def read(self, offset, length):
        return b"".join(self._memory.read(address, n) for address, n in self._pieces(offset, length))

    def write(self, offset, data):
        at = 0
        for address, n in self._pieces(offset, len(data)):
            self._memory.write(address, data[at:at + n])
            at += n
