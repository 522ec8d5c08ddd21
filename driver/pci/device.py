"""PCI function as the driver's Device."""

import contextlib
import errno
import os
import select
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..device.attached import ForeignMemory
from ..device.device import Device, DmaBuffer
from ..device.health import ALL_ONES
from ..terms.errors import InvalidValue, PyverbsRDMAError
from ..terms.program_mapping import ProgramMapping
from .access import PciAccess
from .resource_access import ResourceAccess
from .sysfs import SYSFS, SysfsFunction
from .vfio_access import open_group, open_iommufd

POLL_NS = 200_000          # longest sleep of a wait without interrupts
BUSY_NS = 5_000            # time for which a wait polls before it blocks
SELECT_FILES = 1024         # FD_SETSIZE
IOMMUFD = Path("/dev/iommu")


class PciDevice(Device):
    """Card of a PCI function.

    The function is reset when it is opened and when it is closed. BAR 0 is not prefetchable and therefore mapped
    uncached: there is no write of a whole descriptor, and :attr:`pushes` is false.

    After an uncorrectable error, or when the kernel wants to remove the function, its bus mastering ends, and registers
    read as ones, as those of a card that was pulled: the driver ends with ``DEVICE_FATAL``.

    Parameters
    ----------
    access : PciAccess
        Open function, which the device owns.
    """

    shortest_wait_ns = 20_000

    def __init__(self, access: PciAccess) -> None:
        self._access, self._memory, self.gone = access, access.memory, False
        self._dwords, self._qwords = access.bar.cast("I"), access.bar.cast("Q")
        self._events: list[int] = []        # of the vectors: the kernel complains if two have the same
        self._alarm = _eventfd()
        self._interrupts, self._closed = False, False
        try:
            access.reset()
            access.command(enable=True)
            access.watch(self._alarm)
        except BaseException:
            self._release()
            raise

    # ----------------------------------------------------------------------------------------- registers

    def read32(self, offset: int) -> int:
        return ALL_ONES if self.gone else self._dwords[offset // 4]

    def read64(self, offset: int) -> int:
        return ALL_ONES << 32 | ALL_ONES if self.gone else self._qwords[offset // 8]

    def write32(self, offset: int, value: int) -> None:
        if not self.gone:
            self._dwords[offset // 4] = value & ALL_ONES

    def write64(self, offset: int, value: int) -> None:
        if not self.gone:
            self._qwords[offset // 8] = value

    # -------------------------------------------------------------------------------------------- memory

    def alloc(self, size: int, *, align: int = 64, contiguous: bool = True, page_bytes: int = 4096) -> DmaBuffer:
        return self._memory.alloc(size, align=align, contiguous=contiguous, page_bytes=page_bytes)

    def free(self, buffer: DmaBuffer) -> None:
        self._memory.free(buffer)

    def pin(self, address: int, length: int) -> DmaBuffer:
        return self._memory.pin(address, length)

    def unpin(self, buffer: DmaBuffer) -> None:
        self._memory.unpin(buffer)

    def map(self, fd: int, offset: int, size: int) -> DmaBuffer:
        return self._memory.map(fd, offset, size)

    @property
    def for_programs(self) -> ProgramMapping:
        mapping: ProgramMapping = self._memory.mapper.for_programs
        return mapping

    def attach(self, memory: ForeignMemory, address: int, size: int, va: int, page_bytes: int) -> DmaBuffer:
        return self._memory.attach(memory, address, size, va, page_bytes)

    def detach(self, buffer: DmaBuffer) -> None:
        self._memory.detach(buffer)

    def buffer_at(self, va: int, length: int) -> DmaBuffer:
        return self._memory.buffer_at(va, length)

    # ---------------------------------------------------------------------------------- interrupts, time

    def enable_interrupts(self, vectors: int) -> None:
        self._events += [_eventfd() for _ in range(vectors - len(self._events))]
        self._interrupts = self._access.set_msix(self._events[:vectors])

    def wait(self, timeout_ns: float) -> bool:
        """Wait for an interrupt: see :meth:`weft.driver.device.device.Device.wait`.

        Without interrupts this is a short sleep, which returns true.
        """
        if not self._interrupts:
            time.sleep(min(timeout_ns, POLL_NS) / 1e9)
            return True
        now = time.monotonic_ns()
        end, busy_end = now + timeout_ns, now + min(timeout_ns, BUSY_NS)
        while not (ready := self._ready(0)) and time.monotonic_ns() < busy_end:
            pass
        if not ready and (left := end - time.monotonic_ns()) > 0:
            ready = self._ready(left)
        self._take(ready)
        return bool(ready)

    def _take(self, files: Iterable[int]) -> bool:
        """Reset eventfds; return true if one was signalled."""
        taken = False
        for file in files:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(file)
                taken = True
                if file == self._alarm and not self.gone:
                    self._lose()
        return taken

    def _lose(self) -> None:
        """End the function's access to memory, which the driver frees when a card is gone: it may still be there."""
        self.gone = True
        with contextlib.suppress(OSError):
            self._access.command(enable=False)

    @property
    def files(self) -> Sequence[int]:
        """Descriptors that become readable at an interrupt, an error, or a request for removal."""
        return *self._events, self._alarm

    @property
    def polls(self) -> bool:
        """There are no interrupts."""
        return not self._interrupts

    def take_interrupts(self) -> bool:
        """Reset :attr:`files`, for a caller that waits for them itself; return true if there was one."""
        return self._take(self.files)

    def _ready(self, timeout_ns: float) -> list[int]:
        files = self.files
        if max(files) < SELECT_FILES:       # the time-outs of poll are whole milliseconds
            return select.select(files, (), (), timeout_ns / 1e9)[0]
        poll = select.poll()
        for file in files:
            poll.register(file, select.POLLIN)
        return [file for file, _ in poll.poll(-(-timeout_ns // 1_000_000))]

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def close(self) -> None:
        """Disable interrupts and bus mastering, reset the function, and release everything.

        Raises
        ------
        InvalidValue
            If memory is in use; interrupts and bus mastering are disabled in any case.
        PyverbsRDMAError
            If the function does not come out of its reset. Everything is released nevertheless.
        """
        if self._closed:
            return
        self._access.command(enable=False)      # first: if a later step fails, the card reaches no memory
        try:
            if self._interrupts:
                self._interrupts = False
                self._access.set_msix([])
            if not self.gone:
                self._access.reset()
        finally:
            if not self._memory.pinned:
                self._release()
        if not self._closed:
            raise InvalidValue(f"{self._memory.pinned} ranges of memory are in use", errno.EBUSY)

    def _release(self) -> None:
        self._dwords.release()
        self._qwords.release()
        self._access.close()        # before its address space, which cannot be destroyed while a device uses it
        self._memory.close()
        for file in (*self._events, self._alarm):
            os.close(file)
        self._closed = True


def _eventfd() -> int:
    return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


def open_access(address: str, root: Path = SYSFS, iommufd: Path = IOMMUFD) -> PciAccess:
    """Open a function by the first way that this machine has: iommufd, VFIO group, its no-IOMMU mode, sysfs.

    Raises
    ------
    PyverbsRDMAError
        The message names the missing requirement. A function that is not a card is not touched.
    """
    function = SysfsFunction(address, root)
    if not function.is_card:
        raise PyverbsRDMAError(f"the PCI function {address} is not a card; `weft devices` lists the cards",
                               errno.ENODEV)
    group, name = function.group, function.vfio_device
    if group is None:
        return ResourceAccess(function)
    if not function.has_iommu:
        return open_group(address, group, iommu=False)
    if name is not None and iommufd.exists():
        return open_iommufd(name)
    return open_group(address, group)


def open_device(address: str) -> PciDevice:
    """Open the card at a PCI address, for :func:`~weft.driver.verbs.device_list.add_device`.

    Raises
    ------
    PyverbsRDMAError
        The message names the missing requirement.
    """
    return PciDevice(open_access(address))
