"""Memory regions."""

from collections.abc import Sequence

from weft.hdl.contract import abi

from ..device.device import DmaBuffer
from ..device.page_table import page_list, pick_page_bytes
from ..queue.command import CommandError, PendingCommand, RememberedCommand
from ..terms.checks import between, member, mr_access, unsigned
from ..terms.closing import Closing, Release
from ..terms.enums import AccessFlag, ReregFlag
from ..terms.errors import InvalidValue, NotSupported, OutOfResources, PyverbsUserError
from .locking import locked, made_locked
from .pd import PD
from .requests import ADDRESS_BITS

_LENGTH_MAX = (1 << 64) - 1
_REREG = ReregFlag.CHANGE_TRANSLATION | ReregFlag.CHANGE_PD | ReregFlag.CHANGE_ACCESS


class MR(Closing):
    """Registered memory.

    Parameters
    ----------
    creator : PD
    length : int
        Bytes. Without ``address`` and ``buffer``, memory is allocated for them.
    access : AccessFlag
    address : int or None
        Start of the region: in memory of the program, or in ``buffer``.
    implicit : bool
        Region of all memory; not supported.
    buffer : DmaBuffer or None
        Buffer that contains the region; without ``length`` the region extends from ``address`` to its end.
    page_bytes : int or None
        4096 or 2 MiB; default the larger one that fits the memory.

    Attributes
    ----------
    buf, length : int
        First virtual address and bytes.
    installed : bool
        The card has the region, or may have it.
    lkey, rkey : int
        Keys for scatter-gather entries of this program, and for peers. They differ and are not interchangeable: the
        card identifies the region by ``rkey`` alone, and the driver translates each ``lkey`` when it is posted.
    """

    @made_locked
    def __init__(self, creator: PD, length: int = 0, access: int = 0, address: int | None = None,
                 implicit: bool = False, *, buffer: DmaBuffer | None = None, page_bytes: int | None = None) -> None:
        if not hasattr(creator, "mrs") or not hasattr(creator, "context"):
            raise PyverbsUserError(f"Cannot create MR from {type(creator)}")
        creator.check_open()
        if implicit:
            raise NotSupported("Failed to register a MR: memory is registered piece by piece here")
        self.pd, self.context, self.access = creator, creator.context, mr_access(access)
        if page_bytes not in (None, abi.PAGE_4K, abi.PAGE_2M):
            raise InvalidValue(f"page_bytes is {page_bytes}; {abi.PAGE_4K} and {abi.PAGE_2M} are possible")
        self._page_bytes, self.installed = page_bytes, False
        with self.context.lending() as lent:
            self._place(lent, buffer, address, length)
            own = Release()
            lent.callback(own.close)
            self.index = self.context.mr_indices.take()
            own.callback(self.context.mr_indices.release, self.index)
            self.rkey = abi.make_key(self.index, self.context.key_tags.new(self.index))
            self.lkey = self.context.local_keys.new(self.index, self.rkey)
            own.callback(self.context.local_keys.forget, self.lkey)
            self._register()
            self._own, self._memory = own.pop_all(), lent.pop_all()
        self._commands = RememberedCommand(self.context.commands)
        self.closed = False
        creator.mrs[self] = None
        self.context.mrs[self.index] = self

    def _place(self, lent: Release, buffer: DmaBuffer | None, address: int | None, length: int) -> None:
        """Find, pin or allocate the memory, and allocate its page-table entries; ``lent`` releases both."""
        if address is not None:
            address = unsigned("address", address, ADDRESS_BITS)
        if buffer is None and address:
            buffer = self.context.device.pin(address, between("length", length, 1, _LENGTH_MAX))
            lent.callback(self.context.device.unpin, buffer)
        elif buffer is None:
            buffer = self._allocate(length, lent)
        self.buffer, self.buf = buffer, address or buffer.va
        self.length = between("length", length or buffer.va + buffer.size - self.buf, 1, _LENGTH_MAX)
        self.page_bytes = self._page_bytes or pick_page_bytes(buffer, self.buf, self.length)
        pages = len(page_list(buffer, self.buf, self.length, self.page_bytes))
        self._ptes = (self.context.pte_ranges.alloc(pages), pages)
        lent.callback(self.context.pte_ranges.free, *self._ptes)

    def _allocate(self, size: int, lent: Release) -> DmaBuffer:
        page_bytes = abi.PAGE_2M if self.access & AccessFlag.HUGETLB else abi.PAGE_4K
        pages, ranges = -(-between("length", size, 1, _LENGTH_MAX) // page_bytes), self.context.pte_ranges
        if pages > ranges.free_total:      # checked before the host allocates what may be all of its memory
            raise OutOfResources(f"{size} bytes take {pages} page-table entries; "
                                 f"{ranges.free_total} of {ranges.size} are free")
        buffer = self.context.device.alloc(size, contiguous=False, page_bytes=page_bytes)
        lent.callback(self.context.device.free, buffer)
        return buffer

    @property
    def pte_index(self) -> int:
        """Index of the region's first entry in the page table."""
        return self._ptes[0]

    def _register(self) -> None:
        self.install()

    def install(self) -> None:
        """Register the region at the card: first its pages, then the region."""
        self.context.page_writer.write(self.pte_index, self._pages())
        self.installed = True      # possibly, if there is no response
        try:
            self.context.commands.call(abi.CommandOpcode.MR_CREATE, **self._entry())
        except CommandError:
            self.installed = False
            raise

    def uninstall(self) -> None:
        """Remove the region from the card."""
        self._commands.call(abi.CommandOpcode.MR_DESTROY, mr_index=self.index)
        self.installed = False

    def _pages(self) -> list[int]:
        return page_list(self.buffer, self.buf, self.length, self.page_bytes)

    def _entry(self) -> dict[str, int]:
        """Return the fields of the region in the card's table."""
        return {"mr_index": self.index, "key_tag": self.rkey % (1 << abi.KEY_TAG_BITS), "va": self.buf,
                "length": self.length, "access": self.access & 0xF, "pd": self.pd.handle,
                "page_2m": int(self.page_bytes == abi.PAGE_2M), "pte_index": self._ptes[0]}

    @staticmethod
    def install_all(regions: "Sequence[MR]") -> None:
        """Register several regions of a card, whose page-table entries are written together where they are consecutive.

        Raises
        ------
        CommandError, CommandTimeout, DeviceFatal
        """
        if not regions:
            return
        context, at, error = regions[0].context, 0, None
        pages: list[int] = []
        for mr in sorted(regions, key=lambda mr: mr.pte_index):
            if mr.pte_index != at + len(pages):
                context.page_writer.write(at, pages)
                at, pages = mr.pte_index, []
            pages += mr._pages()
        context.page_writer.write(at, pages)
        commands = []
        for mr in regions:
            mr.installed = True
            commands.append(PendingCommand(abi.CommandOpcode.MR_CREATE))
            context.commands.submit(abi.CommandOpcode.MR_CREATE, commands[-1], **mr._entry())
        for mr, command in zip(regions, commands, strict=True):
            try:
                context.commands.finish(command)
            except CommandError as problem:
                mr.installed, error = False, problem
        if error is not None:
            raise error

    @locked
    def rereg(self, flags: int, pd: PD | None = None, addr: int = 0, length: int = 0, access: int = 0, *,
              buffer: DmaBuffer | None = None) -> None:
        """Change the parts of the region that ``flags`` name; the keys stay the same.

        The parts are the memory (``addr`` and ``length`` in memory of the program or in ``buffer``), the protection
        domain and the access. The region must not be in use during the call.

        Raises
        ------
        InvalidValue, NotSupported, OutOfResources
            The region is unchanged.
        CommandError, CommandTimeout
            If the card does not confirm the change. The region can only be closed then.
        """
        flags = member("flags", flags, ReregFlag)
        if self.closed or self.closing or not flags or int(flags) & ~int(_REREG):
            raise InvalidValue(f"Failed to rereg MR: IBV_REREG_MR_ERR_INPUT, with flags {flags!r}"
                               + (" of a closed region" if self.closed else ""))
        domain = self.pd
        if flags & ReregFlag.CHANGE_PD:
            if not isinstance(pd, PD) or pd.context is not self.context:
                raise InvalidValue("Failed to rereg MR: a PD of its context is needed")
            pd.check_open()
            domain = pd
        access = mr_access(access) if flags & ReregFlag.CHANGE_ACCESS else self.access
        with self.context.lending() as lent:
            before = self.buffer, self.buf, self.length, self.page_bytes, self._ptes
            try:
                if flags & ReregFlag.CHANGE_TRANSLATION:
                    self._place(lent, buffer, addr or None, length)
                after = self.buffer, self.buf, self.length, self.page_bytes, self._ptes
            finally:
                self.buffer, self.buf, self.length, self.page_bytes, self._ptes = before
            self.context.engine.lender.windows.revoke(self)
            installed = self.installed
            if installed:
                self.uninstall()
            self.buffer, self.buf, self.length, self.page_bytes, self._ptes = after
            self.access = access
            if flags & ReregFlag.CHANGE_PD:
                self.pd.mrs.pop(self, None)
                self.pd = domain
                domain.mrs[self] = None
            if installed:
                self.install()
            if flags & ReregFlag.CHANGE_TRANSLATION:
                self._memory.close()
                self._memory = lent.pop_all()

    def read(self, length: int, offset: int) -> bytes:
        """Return ``length`` bytes of the region from ``offset`` on."""
        self._check_inside(length, offset)
        return self.buffer.read(self.buf - self.buffer.va + offset, length)

    def write(self, data: bytes | bytearray | memoryview | str, length: int | None = None, offset: int = 0) -> None:
        """Store bytes or text in the region: the first ``length`` bytes of them, or all."""
        if isinstance(data, int):
            raise TypeError(f"data is {data!r}; text or bytes are needed")
        data = data.encode() if isinstance(data, str) else bytes(data)
        data = data if length is None else data[:length]
        self._check_inside(len(data), offset)
        self.buffer.write(self.buf - self.buffer.va + offset, data)

    def _check_inside(self, length: int, offset: int) -> None:
        if not isinstance(length, int) or not isinstance(offset, int):
            raise TypeError(f"length is {length!r} and offset {offset!r}; integers are needed")
        if self.closed or length < 0 or offset < 0 or offset + length > self.length:
            raise PyverbsUserError(f"The MR buffer isn't allocated or length {length} or offset {offset} is invalid")

    @property
    def handle(self) -> int:
        """Index of the region in the card's table."""
        return self.index

    @locked
    def close(self) -> None:
        """Deregister the region: afterwards neither key is valid and the card does not access the memory.

        Raises
        ------
        CommandError, CommandTimeout, DeviceFatal
            If the card does not confirm it. Nothing is freed then, and the call may be repeated.
        """
        if self.closed:
            return
        engine = self.context.engine
        engine.lender.windows.revoke(self)
        with engine.giving_up():
            if not engine.stopped and self._commands.settle() is None and self.installed:
                self._commands.call(abi.CommandOpcode.MR_DESTROY, mr_index=self.index)
        self.forget()

    @property
    def closing(self) -> bool:
        """True while a command for the region, such as its deregistration, is unanswered."""
        return self._commands.pending is not None

    def forget(self) -> None:
        """Release all resources of a region that the card no longer holds."""
        self.context.mrs.pop(self.index, None)
        self.closed = True
        self.pd.mrs.pop(self, None)
        self._memory.close()
        self._own.close()
