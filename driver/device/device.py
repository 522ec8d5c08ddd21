"""The card as the driver sees it: registers, DMA memory, interrupts and time.

Everything above this module is the same whether a simulated card, the functional model or
hardware is below: a back end is one subclass of :class:`Device`.
"""

import abc

from ..terms.errors import NotSupported


class _View:
    """Bytes of a buffer that are read when somebody looks."""

    def __init__(self, buffer, offset, length):
        self._buffer, self._offset, self._length = buffer, offset, length

    def __getitem__(self, index):
        return self._buffer.read(self._offset + index, 1)[0]

    def __bytes__(self):
        return self._buffer.read(self._offset, self._length)


class DmaBuffer(abc.ABC):
    """Pinned host memory: contiguous in virtual addresses, made of physical pages.

    ``va % page_bytes == physical(0) % page_bytes`` always holds, and within a page physical
    addresses are consecutive.

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
    def physical(self, offset=0):
        """Physical address of a byte."""

    @abc.abstractmethod
    def read(self, offset, length):
        """``length`` bytes from ``offset``.

        Raises
        ------
        ValueError
            If the range leaves the buffer.
        """

    def view(self, offset, length):
        """Bytes within a page as they are whenever somebody looks, by ``view[index]`` and ``bytes(view)``."""
        return _View(self, offset, length)

    @abc.abstractmethod
    def write(self, offset, data):
        """Store ``data`` at ``offset``; the card sees it before any later register write."""


class Device(abc.ABC):
    """Registers, DMA memory, interrupts and the clock of one card.

    Interrupts are latched: one that arrives before :meth:`wait` makes the next ``wait`` return at
    once. A ring's interrupt fires once for each arming write to its ``cons`` register
    (:data:`weft.hdl.contract.abi.ARM_BIT`), as soon as an unconsumed entry exists, on its
    :data:`weft.hdl.contract.abi.VECTOR`.

    Attributes
    ----------
    shortest_wait_ns : int
        Nobody who waits for the card waits for less: so long a register write takes to the card and what comes of it
        back to memory, about half a microsecond each way over PCIe. Shorter waits would only burden the bus. A back
        end whose card is further away, or whose clock is coarser, says more.
    pushes : bool
        Whether :meth:`write_block` reaches the card in one piece, from memory of the device that the processor
        combines writes to.
    """

    shortest_wait_ns = 1_000
    pushes = False
    _user = None

    def claim(self, user):
        """``user`` alone drives the card from now on.

        Raises
        ------
        ValueError
            If somebody else does.
        """
        if self._user is not None:
            raise ValueError("another context uses the device")
        self._user = user

    def release(self, user):
        """``user`` does not drive it any more."""
        if self._user is user:
            self._user = None

    @abc.abstractmethod
    def read32(self, offset):
        """Read a 4-byte register; blocks for the round trip."""

    @abc.abstractmethod
    def read64(self, offset):
        """Read an 8-byte register."""

    @abc.abstractmethod
    def write32(self, offset, value):
        """Write 4 bytes. Posted: returns before the card has seen it, but in order."""

    @abc.abstractmethod
    def write64(self, offset, value):
        """Write 8 bytes as one access. Posted."""

    def write_block(self, offset, data):
        """Write 64 aligned bytes. Posted; in one piece where :attr:`pushes`."""
        for at in range(0, len(data), 8):
            self.write64(offset + at, int.from_bytes(data[at:at + 8], "little"))

    @abc.abstractmethod
    def alloc(self, size, *, align=64, contiguous=True, page_bytes=4096):
        """Pin ``size`` bytes and return their :class:`DmaBuffer`, filled with zeros.

        Parameters
        ----------
        size : int
            Bytes.
        align : int
            Alignment of ``va`` and, when contiguous, of the physical address.
        contiguous : bool
            One physically contiguous piece. Otherwise ``va`` starts a page and every page of
            ``page_bytes`` lies anywhere.
        page_bytes : int
            4096 or 2 MiB.
        """

    @abc.abstractmethod
    def free(self, buffer):
        """Give a buffer back. The card must not know its addresses any more."""

    def pin(self, address, length):
        """Pin memory of the program's own and return it as a :class:`DmaBuffer`.

        Raises
        ------
        NotSupported
            If this back end cannot.
        """
        raise NotSupported("this back end cannot pin the program's own memory; it allocates what it registers")

    def map(self, fd, offset, size):
        """Pin pages of a file that other processes map as well, and return them as a :class:`DmaBuffer`, which
        :meth:`free` gives back.

        Raises
        ------
        NotSupported
            If this back end cannot.
        """
        raise NotSupported("this back end cannot map pages that other processes share")

    def buffer_at(self, va, length):
        """The :class:`DmaBuffer` that holds a range of what :meth:`alloc` and :meth:`pin` returned.

        Raises
        ------
        PyverbsRDMAError
            With EFAULT, if none does.
        NotSupported
            If this back end does not know.
        """
        raise NotSupported("this back end does not find its buffers by address")

    def unpin(self, buffer):
        """What :meth:`pin` returned is not registered any more."""
        return

    def enable_interrupts(self, vectors):
        """Route MSI-X vectors 0 to ``vectors`` − 1 to :meth:`wait`. A back end that needs no set-up leaves it."""
        return

    def acquire(self, lock):
        """Take a lock that another thread has. A back end in whose time only one thread moves lets time go on."""
        lock.acquire()

    @abc.abstractmethod
    def wait(self, timeout_ns):
        """Block until an interrupt arrives or ``timeout_ns`` have passed; true for an interrupt."""

    @abc.abstractmethod
    def now_ns(self):
        """Monotonic time in nanoseconds (simulated time in simulations)."""

    def close(self):
        """Release what the back end holds."""
        return
