"""Driver's interface to a simulated card.

The driver is ordinary blocking Python. It runs in a separate thread through ``cocotb.task.bridge``. Simulated time
stands still while the driver computes, and advances during each blocking call of this module until the call returns.
"""

import cocotb
from cocotb.task import resume
from cocotb.triggers import Event, First, Timer
from cocotb.utils import get_sim_time

from weft.driver.device.attached import attached_pages
from weft.driver.device.buffers import Buffers
from weft.driver.device.device import Device
from weft.tb.sim.pcie.host_memory import PAGE_BYTES, HostBuffer

VA_BASE = 0x7F00_0000_0000
PAGE_SIZES = (PAGE_BYTES, 1 << 21)
UNANSWERED_NS = 1_000
LOCK_POLL_NS = 100


def _round_up(value, unit):
    return -(-value // unit) * unit


class CardDevice(Device):
    """:class:`~weft.driver.device.device.Device` on a started :class:`~weft.tb.sim.pcie.host.Host`.

    Except for :meth:`now_ns` and memory, methods must be called from a bridge thread; benches that are coroutines
    use ``host.bar`` instead.

    Attributes
    ----------
    interrupts : dict
        Number of received interrupts, by vector.
    interrupted : callable(vector)
        Called at each interrupt.
    """

    pushes = True

    def __init__(self, host):
        self.host = host
        self.interrupts, self.interrupted = {}, lambda vector: None
        self._buffers = Buffers()
        self._arrived, self._latched = Event(), False
        self._next_va = VA_BASE + host.rng.randrange(1 << 12) * PAGE_SIZES[1]
        for number in range(len(host.function.msi_vectors)):
            host.function.request_irq(number, self._handler(number))

    def _handler(self, number):
        async def arrived():
            self.interrupts[number] = self.interrupts.get(number, 0) + 1
            self.interrupted(number)
            self._latched = True
            self._arrived.set()
        return arrived

    # ------------------------------------------------------------------ registers

    @resume
    async def read32(self, offset):
        return await self._read(offset, 4)

    @resume
    async def read64(self, offset):
        return await self._read(offset, 8)

    @resume
    async def write32(self, offset, value):
        await self._write(offset, value.to_bytes(4, "little"))

    @resume
    async def write64(self, offset, value):
        await self._write(offset, value.to_bytes(8, "little"))

    @resume
    async def write_block(self, offset, data):
        await self._write(offset, data)

    async def _read(self, offset, size):
        """Read from the card. An unplugged card does not respond; the root complex then returns all ones."""
        unplugged = self.host.unplugged
        if not unplugged.is_set():
            answer, answered = [], Event()

            async def ask():
                answer.append(await self.host.bar.read(offset, size))
                answered.set()

            cocotb.start_soon(ask())
            await First(answered.wait(), unplugged.wait())
            if answer:
                return int.from_bytes(answer[0], "little")
        await Timer(UNANSWERED_NS, "ns")
        return (1 << 8 * size) - 1

    async def _write(self, offset, data):
        if not self.host.unplugged.is_set():
            await self.host.bar.write(offset, data)

    # --------------------------------------------------------------------- memory

    def alloc(self, size, *, align=64, contiguous=True, page_bytes=PAGE_BYTES):
        if page_bytes not in PAGE_SIZES:
            raise ValueError(f"pages of {page_bytes} bytes; choose one of {PAGE_SIZES}")
        if size < 1 or align < 1 or align & (align - 1):
            raise ValueError("size must be positive and align a power of two")
        memory, rng = self.host.memory, self.host.rng
        whole = _round_up(size, page_bytes)
        unit = max(align, page_bytes)
        if contiguous:
            blocks = [(memory.allocate(whole, unit), whole)]
            offset = rng.randrange((whole - size) // align + 1) * align
        else:
            blocks = [(memory.allocate(page_bytes, page_bytes), page_bytes) for _ in range(whole // page_bytes)]
            offset = 0
        return self._buffer(blocks, size, page_bytes, unit, offset)

    def _buffer(self, blocks, size, page_bytes, unit, offset=0):
        va = _round_up(self._next_va, unit)
        self._next_va = va + len(blocks) * blocks[0][1] + PAGE_BYTES  # a hole between buffers
        buffer = HostBuffer(self.host.memory, va + offset, size, page_bytes, blocks, offset)
        self._buffers.add(buffer)
        return buffer

    def attach(self, memory, address, size, va, page_bytes):
        blocks = [(self.host.memory.allocate(PAGE_BYTES, page=page), PAGE_BYTES)
                  for page in attached_pages(memory, address, size)]
        return HostBuffer(self.host.memory, va, size, PAGE_BYTES, blocks)

    def detach(self, buffer):
        self._release(buffer)

    def buffer_at(self, va, length):
        return self._buffers.find(va, length)

    def free(self, buffer):
        self._buffers.remove(buffer)
        self._release(buffer)

    def _release(self, buffer):
        for address, size in buffer.blocks:
            self.host.memory.release(address, size)

    # ----------------------------------------------------------- interrupts, time

    def acquire(self, lock):
        while not lock.acquire(blocking=False):     # in the thread that will hold the lock
            self._let_others_go_on()

    @resume
    async def _let_others_go_on(self):
        await Timer(LOCK_POLL_NS, "ns")

    @resume
    async def wait(self, timeout_ns):
        if not self._latched and timeout_ns > 0:
            self._arrived.clear()
            await First(self._arrived.wait(), Timer(max(1, round(timeout_ns * 1000)), "ps"))
        arrived, self._latched = self._latched, False
        return arrived

    def now_ns(self):
        return round(get_sim_time("ns"))
