"""Interface between driver and card: registers, DMA memory, interrupts and time.

The driver above this module is the same for a simulated card, the functional model and hardware. A back end is a
subclass of :class:`Device`.
"""

import abc
import bisect
import errno
import threading

from ..terms.errors import NotSupported, PyverbsRDMAError
from ..terms.program_mapping import ProgramMapping
from .attached import PAGE, ForeignMemory


class BufferView:
    """Bytes of a buffer that are read on access; they have length, indices and ``bytes()`` of a ``memoryview``."""

    def __init__(self, buffer: "DmaBuffer", offset: int, length: int) -> None:
        self._buffer, self._places = buffer, range(offset, offset + length)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> int:
        return self._buffer.read(self._places[index], 1)[0]

    def __bytes__(self) -> bytes:
        return self._buffer.read(self._places.start, len(self._places))


class DmaBuffer(abc.ABC):
    """Pinned host memory: contiguous in virtual addresses, made of physical pages.

    ``va % page_bytes == physical(0) % page_bytes`` always holds, and physical addresses within a page are consecutive.

    Attributes
    ----------
    va : int
        Virtual address of the first byte.
    size : int
        Bytes.
    page_bytes : int
        Size of the physically contiguous pieces, 4096 or 2 MiB.
    """

    va: int
    size: int
    page_bytes: int

    @abc.abstractmethod
    def physical(self, offset: int = 0) -> int:
        """Return the physical address of a byte."""

    @abc.abstractmethod
    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``.

        Raises
        ------
        ValueError
            If the range exceeds the buffer.
        """

    def view(self, offset: int, length: int) -> memoryview | BufferView:
        """Return a view of bytes within a page. ``view[index]`` and ``bytes(view)`` read their current values.

        Raises
        ------
        ValueError
            If the bytes are not in a page of the buffer.
        """
        if not 0 <= offset <= offset + length <= self.size or (self.va + offset) % PAGE + length > PAGE:
            raise ValueError(f"{length} bytes from {offset} on are not in a page of a buffer of {self.size} bytes")
        return BufferView(self, offset, length)

    @abc.abstractmethod
    def write(self, offset: int, data: bytes) -> None:
        """Store ``data`` at ``offset``. The card sees it before any later register write."""


class Device(abc.ABC):
    """Registers, DMA memory, interrupts and clock of one card.

    Interrupts are latched: after an interrupt that arrives before :meth:`wait`, the next ``wait`` returns at once. A
    ring's interrupt is raised once for each arming write to its ``cons`` register
    (:data:`weft.hdl.contract.abi.ARM_BIT`), as soon as an unconsumed entry exists, on its
    :data:`weft.hdl.contract.abi.VECTOR`.

    Attributes
    ----------
    shortest_wait_ns : int
        Shortest wait for the card: the time of a register write to the card and of its effect back to memory, about
        half a microsecond each way over PCIe. Shorter waits would only load the bus. A back end with a longer path to
        the card, or a coarser clock, has a larger value.
    pushes : bool
        True if :meth:`write_block` reaches the card in one piece, through write-combining memory of the device.
    """

    shortest_wait_ns = 1_000
    pushes = False
    _user: object = None

    def claim(self, user: object) -> None:
        """Make ``user`` the only driver of the card.

        Raises
        ------
        ValueError
            If another one drives it.
        """
        if self._user is not None:
            raise ValueError("another context uses the device")
        self._user = user

    def release(self, user: object) -> None:
        """End the claim of ``user``."""
        if self._user is user:
            self._user = None

    @abc.abstractmethod
    def read32(self, offset: int) -> int:
        """Read a 4-byte register. Blocks for the round trip."""

    @abc.abstractmethod
    def read64(self, offset: int) -> int:
        """Read an 8-byte register."""

    @abc.abstractmethod
    def write32(self, offset: int, value: int) -> None:
        """Write 4 bytes. Posted: returns before the card has received it, but in order."""

    @abc.abstractmethod
    def write64(self, offset: int, value: int) -> None:
        """Write 8 bytes as one access. Posted."""

    def write_block(self, offset: int, data: bytes) -> None:
        """Write 64 aligned bytes. Posted; in one piece if :attr:`pushes`."""
        for at in range(0, len(data), 8):
            self.write64(offset + at, int.from_bytes(data[at:at + 8], "little"))

    @abc.abstractmethod
    def alloc(self, size: int, *, align: int = 64, contiguous: bool = True, page_bytes: int = 4096) -> DmaBuffer:
        """Pin ``size`` bytes and return their :class:`DmaBuffer`, filled with zeros.

        Parameters
        ----------
        size : int
            Bytes.
        align : int
            Alignment of ``va`` and, when contiguous, of the physical address.
        contiguous : bool
            One physically contiguous piece. Otherwise ``va`` starts a page, and the pages of ``page_bytes`` have
            arbitrary physical addresses.
        page_bytes : int
            4096 or 2 MiB.
        """

    @abc.abstractmethod
    def free(self, buffer: DmaBuffer) -> None:
        """Free a buffer. Requires that the card does not have its addresses any more."""

    def pin(self, address: int, length: int) -> DmaBuffer:
        """Pin memory that the program allocated, and return it as a :class:`DmaBuffer`.

        Parameters
        ----------
        address, length : int
            Virtual address, and bytes.

        Raises
        ------
        NotSupported
            If this back end cannot.
        """
        raise NotSupported("this back end cannot pin the program's own memory; it allocates what it registers")

    def map(self, fd: int, offset: int, size: int) -> DmaBuffer:
        """Pin pages of a file that other processes map as well, and return them as a :class:`DmaBuffer`.

        :meth:`free` unmaps them.

        Parameters
        ----------
        fd : int
            Descriptor of the file.
        offset, size : int
            Bytes; ``offset`` is a multiple of 4096.

        Raises
        ------
        NotSupported
            If this back end cannot.
        """
        raise NotSupported("this back end cannot map pages that other processes share")

    def attach(self, memory: ForeignMemory, address: int, size: int, va: int, page_bytes: int) -> DmaBuffer:
        """Give the card whole pages of another process, and return their buffer; :meth:`detach` ends that.

        Parameters
        ----------
        memory : ForeignMemory
            Memory of the process.
        address, size : int
            Range in ``memory``, of whole pages of 4 KiB.
        va : int
            Address of the range in work requests.
        page_bytes : int
            4096, or 2 MiB if ``va`` and ``address`` are equal within such a page.

        Raises
        ------
        NotSupported
            If this back end cannot.
        """
        raise NotSupported("this back end cannot access memory of other processes")

    @property
    def for_programs(self) -> ProgramMapping:
        """Steps that another process takes itself before :meth:`attach`."""
        return ProgramMapping()

    def detach(self, buffer: DmaBuffer) -> None:
        """Release a buffer of :meth:`attach`. Requires that the card does not have its addresses any more."""
        raise NotSupported("this back end cannot access memory of other processes")

    def buffer_at(self, va: int, length: int) -> DmaBuffer:
        """Return the :class:`DmaBuffer` of :meth:`alloc` or :meth:`pin` that contains a range.

        Raises
        ------
        PyverbsRDMAError
            With EFAULT, if there is none.
        NotSupported
            If this back end has no such index.
        """
        raise NotSupported("this back end does not find its buffers by address")

    def unpin(self, buffer: DmaBuffer) -> None:
        """Release a buffer of :meth:`pin`, which is not registered any more."""
        return

    def enable_interrupts(self, vectors: int) -> None:
        """Route MSI-X vectors 0 to ``vectors`` − 1 to :meth:`wait`. Does nothing in a back end that needs no set-up."""
        return

    def acquire(self, lock: threading.Lock) -> None:
        """Acquire a lock that another thread holds. A back end with simulated time must advance it meanwhile."""
        lock.acquire()

    @abc.abstractmethod
    def wait(self, timeout_ns: float) -> bool:
        """Block until an interrupt arrives or ``timeout_ns`` have passed. Return true for an interrupt."""

    @abc.abstractmethod
    def now_ns(self) -> float:
        """Return the monotonic time in nanoseconds. Simulated time may have fractions of a nanosecond."""

    def close(self) -> None:
        """Release the resources of the back end."""
        return


class Buffers:
    """Existing buffers, which do not overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._buffers: list[DmaBuffer] = []

    def add(self, buffer: DmaBuffer) -> None:
        at = bisect.bisect(self._starts, buffer.va)
        self._starts.insert(at, buffer.va)
        self._buffers.insert(at, buffer)

    def remove(self, buffer: DmaBuffer) -> None:
        at = self._buffers.index(buffer, max(0, bisect.bisect(self._starts, buffer.va) - 1))
        del self._starts[at], self._buffers[at]

    def find(self, va: int, length: int) -> DmaBuffer:
        """Return the buffer that contains a range.

        Raises
        ------
        PyverbsRDMAError
            With EFAULT, if there is none.
        """
        at = bisect.bisect(self._starts, va) - 1
        if at >= 0 and va + length <= self._starts[at] + self._buffers[at].size:
            return self._buffers[at]
        raise PyverbsRDMAError(f"{length} bytes at {va:#x} are not memory that the card may use", errno.EFAULT)
