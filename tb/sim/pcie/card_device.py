"""Driver's interface to a simulated card.

The driver is ordinary blocking Python. It runs in a separate thread through ``cocotb.task.bridge``. Simulated time
stands still while the driver computes, and advances during each blocking call of this module until the call returns.
"""

from collections import Counter

import cocotb
from cocotb.task import resume
from cocotb.triggers import Event, First, Timer
from cocotb.utils import get_sim_time

from weft.driver.device.device import Buffers, Device
from weft.hdl.contract.abi import PAGE_2M, PAGE_4K
from weft.tb.sim.pcie.host_memory import HostBuffer

PAGE_SIZES = (PAGE_4K, PAGE_2M)
UNANSWERED_NS = 1_000
LOCK_POLL_NS = 100


class CardDevice(Device):
    """:class:`~weft.driver.device.device.Device` on a started :class:`~weft.tb.sim.pcie.host.Host`.

    Except for :meth:`now_ns` and memory, methods must be called from a bridge thread; benches that are coroutines
    use ``host.bar`` instead.

    ``interrupts`` counts the received interrupts by vector; ``interrupted(vector)`` is called at each of them.
    """

    pushes = True

    def __init__(self, host):
        self.host = host
        self.interrupts, self.interrupted = Counter(), lambda vector: None
        self._buffers = Buffers()
        self._arrived, self._latched = Event(), False
        for number in range(len(host.function.msi_vectors)):
            host.function.request_irq(number, self._handler(number))

    def _handler(self, number):
        async def arrived():
            self.interrupts[number] += 1
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

    def alloc(self, size, *, align=64, contiguous=True, page_bytes=PAGE_4K):
        if page_bytes not in PAGE_SIZES:
            raise ValueError(f"pages of {page_bytes} bytes; choose one of {PAGE_SIZES}")
        if size < 1 or align < 1 or align & (align - 1):
            raise ValueError("size must be positive and align a power of two")
        spare = -size % page_bytes if contiguous else 0
        buffer = self.host.memory.alloc(size + spare, align, contiguous, page_bytes)
        if contiguous:
            start = self.host.rng.randrange(spare // align + 1) * align
            buffer = HostBuffer(buffer.memory, buffer.va, size, buffer.frames, page_bytes, start)
        self._buffers.add(buffer)
        return buffer

    def attach(self, memory, address, size, va, page_bytes):
        return self.host.memory.attach(memory, address, size, va, page_bytes)

    def detach(self, buffer):
        self.host.memory.detach(buffer)

    def buffer_at(self, va, length):
        return self._buffers.find(va, length)

    def free(self, buffer):
        self._buffers.remove(buffer)
        self.host.memory.free(buffer)

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
