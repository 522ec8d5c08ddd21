"""Memory of programs, and regions of it."""

import bisect
import ctypes
import fcntl
import os

from weft.hdl.contract.abi import REMOTE_ACCESS

from ..device.attached import PAGE, MemoryFault
from ..queue.command import CommandError
from ..terms.errors import InUse, InvalidValue, OutOfResources
from ..verbs.mr import MR
from .process import Accesses
from .quota import ResourceKind

LARGE_PAGE = 2 << 20
ADDRESS_END = 1 << 56       # of any processor's user space
IOVA_END = 1 << 64
_PROC_SUPER_MAGIC = 0x9FA0
_REMOTE = int(REMOTE_ACCESS)


class Coverage:
    """Multiset of ranges of numbers from 0 on; :meth:`add` and :meth:`remove` return the change of their union."""

    def __init__(self) -> None:
        self._starts, self._counts = [-1], [0]      # of intervals with an equal number of ranges; sorted

    def add(self, first: int, end: int) -> int:
        """Add the range from ``first`` up to ``end``; return how many of its numbers were in no range before."""
        return self._change(first, end, 1)

    def remove(self, first: int, end: int) -> int:
        """Remove a range that was added; return how many of its numbers are in no range any more."""
        return self._change(first, end, -1)

    def _change(self, first: int, end: int, step: int) -> int:
        starts, counts = self._starts, self._counts
        at, to, changed = self._cut(first), self._cut(end), 0
        for number in range(at, to):
            counts[number] += step
            if counts[number] == (step > 0):
                changed += starts[number + 1] - starts[number]
        for number in (to, at):
            if counts[number] == counts[number - 1]:
                del starts[number], counts[number]
        return changed

    def _cut(self, at: int) -> int:
        """Return the number of the interval that begins at ``at``; divide the one around it if there is none."""
        number = bisect.bisect_left(self._starts, at)
        if number == len(self._starts) or self._starts[number] != at:
            self._starts.insert(number, at)
            self._counts.insert(number, self._counts[number - 1])
        return number


class ProgramMemory:
    """Address space of a program, through its file ``/proc/self/mem``.

    The kernel checks permission when the program opens the file, not at an access. A page's protection does not
    restrict the access, except that it cannot write to a file that the program has not opened for writing.

    Parameters
    ----------
    file : int
        Descriptor of the program; a duplicate is kept.
    ended : callable()
        Called when the address space does not exist any more: the program has ended or called ``exec``.
    account : Account or None
        Pays for the pages of regions: once for each page, like pinned memory, however many regions have it.
    process : int
        Number of the process, or 0; see :func:`~weft.driver.serve.process.owner_of`.
    client : Client or None
        The program.
    accesses : Accesses, optional
        Notes each access: a page may never arrive.

    Attributes
    ----------
    users : int
        Number of regions.

    Raises
    ------
    InvalidValue
        If the file is another one.
    """

    def __init__(self, file, ended=lambda: None, account=None, process=0, *, client=None, accesses=None):
        _check(file)
        self._client, self._accesses = client, Accesses() if accesses is None else accesses
        self._file, self._ended, self.users = os.dup(file), ended, 0
        self._account, self._pinned, self.process = account, Coverage(), process

    def pin(self, address, size):
        """Count the pages of a region.

        Raises
        ------
        OutOfResources
            If they exceed the quota.
        """
        added = self._pinned.add(address, address + size)
        if self._account is not None:
            try:
                self._account.take({ResourceKind.MEMORY: added})
            except OutOfResources:
                self._pinned.remove(address, address + size)
                raise
        self.users += 1

    def unpin(self, address, size):
        """Undo :meth:`pin`."""
        self.users -= 1
        removed = self._pinned.remove(address, address + size)
        if self._account is not None:
            self._account.release({ResourceKind.MEMORY: removed})

    def fileno(self):
        """Return the descriptor of the file."""
        return self._file

    def read(self, address, length):
        """Return bytes up to the first page that the program does not have.

        Raises
        ------
        MemoryFault
            If that is the first page, or the program has no memory any more.
        """
        accesses = self._accesses
        accesses.client = self._client
        accesses.count += 1
        try:
            data = os.pread(self._file, length, address)
        except OSError as error:
            raise MemoryFault(f"{length} bytes at {address:#x}: {error.strerror}") from None
        finally:
            accesses.count += 1
        if not data:
            self._ended()
            raise MemoryFault("the program has no memory any more")
        return data

    def write(self, address, data):
        """Write bytes within a page, if the program has it."""
        accesses = self._accesses
        accesses.client = self._client
        accesses.count += 1
        try:
            there = os.pwrite(self._file, data, address)
        except OSError:
            return
        finally:
            accesses.count += 1
        if not there:
            self._ended()

    @property
    def exists(self):
        """True while a process has the address space."""
        try:
            return bool(os.pread(self._file, 1, 0))      # nothing where the address space is gone
        except OSError:
            return True                                  # it has no page there

    def close(self):
        if self.users:
            raise InUse(f"{self.users} memory regions are in the memory")
        self._account = None      # of a program that may be gone while a card without response keeps its regions
        os.close(self._file)


def _check(file):
    """Raise InvalidValue unless a file is some process's memory, which cannot block and has no size."""
    about = (ctypes.c_long * 64)()
    kind = about[0] if ctypes.CDLL(None).fstatfs(file, about) == 0 else None
    if (kind != _PROC_SUPER_MAGIC or not os.readlink(f"/proc/self/fd/{file}").endswith("/mem")
            or fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR):
        raise InvalidValue("the program's /proc/self/mem is needed, opened for reading and writing")


class Place:
    """Range of a program's memory, of whole pages.

    Parameters
    ----------
    memory : ProgramMemory
    address, length : int
        Bytes in the program's memory.
    iova : int
        Address of the first byte in work requests.

    Raises
    ------
    InvalidValue
        If the range wraps at either address, or the addresses differ within a page.
    """

    def __init__(self, memory, address, length, iova):
        if not 0 < length <= min(ADDRESS_END - address, IOVA_END - iova) or (address - iova) % PAGE:
            raise InvalidValue(f"{length} bytes at {address:#x} cannot be registered at {iova:#x}")
        self.memory, self.address, self.va = memory, address // PAGE * PAGE, iova // PAGE * PAGE
        self.size = -(-(address + length) // PAGE) * PAGE - self.address

    @property
    def page_bytes(self):
        """Page size: large for 4 MiB and more, if both addresses are equal within a large page."""
        return LARGE_PAGE if self.size >= 2 * LARGE_PAGE and (self.address - self.va) % LARGE_PAGE == 0 else PAGE

    def attach(self, device, lent):
        """Give the pages to the card, and return their buffer; ``lent`` takes them back.

        Raises
        ------
        OutOfResources
        """
        self.hold(lent)
        buffer = device.attach(self.memory, self.address, self.size, self.va, self.page_bytes)
        lent.callback(device.detach, buffer)
        return buffer

    def hold(self, lent):
        """Pin the pages until ``lent`` is closed.

        Raises
        ------
        OutOfResources
        """
        self.memory.pin(self.address, self.size)
        lent.callback(self.memory.unpin, self.address, self.size)


class ServedMR(MR):
    """Memory region of a program: an :class:`MR` with a :class:`Place` as its ``buffer``.

    The card gets it when its ``lkey`` is first looked up, which a region for peers needs before they can use it.
    """

    def _register(self):
        self.context.local_keys.defer(self.lkey, self._first_use)

    def _first_use(self):
        try:
            if not self.installed:
                self.install()
        except CommandError:
            return False
        return True

    @property
    def is_due(self):
        """True if peers may access the region, but the card does not have it yet."""
        return not self.installed and not self.closed and int(self.access) & _REMOTE != 0

    def _place(self, lent, buffer, address, length):
        buffer = buffer.attach(self.context.device, lent)
        self._page_bytes = buffer.page_bytes
        super()._place(lent, buffer, address, length)
