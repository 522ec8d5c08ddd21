"""Memory regions."""

from weft.hdl import abi

from ..memory.page_table import pack_ptes, page_list, pick_page_bytes
from ..terms.enums import AccessFlag

PTES_PER_COMMAND = 512


class MR:
    """Registered memory.

    Parameters
    ----------
    pd : PD
    memory : int or DmaBuffer
        A length, for which memory is allocated, or a buffer.
    access : AccessFlag
    address, length : int or None
        Part of the buffer; default all of it.
    page_bytes : int or None
        4096 or 2 MiB; default the larger one that fits the memory.

    Attributes
    ----------
    buf, length : int
        First virtual address and bytes.
    lkey, rkey : int
    """

    def __init__(self, pd, memory, access, *, address=None, length=None, page_bytes=None):
        self.pd, self.context, self.access = pd, pd.context, AccessFlag(access)
        self._owned = isinstance(memory, int)
        huge = bool(self.access & AccessFlag.HUGETLB)
        self.buffer = (
            self.context.device.alloc(memory, contiguous=False, page_bytes=abi.PAGE_2M if huge else abi.PAGE_4K)
            if self._owned
            else memory
        )
        self.buf = self.buffer.va if address is None else address
        self.length = (
            (self.buffer.va + self.buffer.size - self.buf if not self._owned else memory) if length is None else length
        )
        self.page_bytes = page_bytes or pick_page_bytes(self.buffer, self.buf, self.length)
        pages = page_list(self.buffer, self.buf, self.length, self.page_bytes)
        self.context.check_open()
        self.index = self.context.mr_indices.alloc(1)
        try:
            self._ptes = (self.context.pte_ranges.alloc(len(pages)), len(pages))
        except MemoryError:
            self.context.mr_indices.free(self.index, 1)
            raise
        self.lkey = self.rkey = abi.make_key(self.index, self._new_tag())
        try:
            self.install()
        except Exception:
            self._release_indices()
            raise
        pd.children.add(self)
        self.context.mrs[self.index] = self
        self.closed = False

    def _new_tag(self):
        """A tag other than the previous one of this index, which must not work again, and not zero."""
        last = self.context.last_key_tag
        tags = [tag for tag in range(1, 1 << abi.KEY_TAG_BITS) if tag != last.get(self.index)]
        last[self.index] = self.context.config.random.choice(tags)
        return last[self.index]

    def install(self):
        """Tell the card: first the pages, then the region."""
        self._write_page_table()
        self.context.commands.call(
            abi.CommandOpcode.MR_CREATE,
            mr_index=self.index,
            key_tag=self.lkey % (1 << abi.KEY_TAG_BITS),
            va=self.buf,
            length=self.length,
            access=self.access & 0xF,
            pd=self.pd.handle,
            page_2m=int(self.page_bytes == abi.PAGE_2M),
            pte_index=self._ptes[0],
        )

    def _write_page_table(self):
        pages = page_list(self.buffer, self.buf, self.length, self.page_bytes)
        staging = self.context.device.alloc(PTES_PER_COMMAND * abi.PTE_BYTES, align=4096)
        try:
            for first in range(0, len(pages), PTES_PER_COMMAND):
                part = pages[first : first + PTES_PER_COMMAND]
                staging.write(0, pack_ptes(part))
                self.context.commands.call(
                    abi.CommandOpcode.PAGE_TABLE_WRITE,
                    pte_index=self._ptes[0] + first,
                    count=len(part),
                    address=staging.physical(0),
                )
        finally:
            self.context.device.free(staging)

    def _release_indices(self):
        self.context.pte_ranges.free(*self._ptes)
        self.context.mr_indices.free(self.index, 1)

    def read(self, length, offset):
        """Bytes of the region."""
        return self.buffer.read(self.buf - self.buffer.va + offset, length)

    def write(self, data, length=None, offset=0):
        """Store bytes in the region."""
        self.buffer.write(self.buf - self.buffer.va + offset, bytes(data if length is None else data[:length]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Deregister: when this returns, neither key works and the card does not touch the memory any more."""
        if self.closed:
            return
        self.closed = True
        self.pd.children.discard(self)
        del self.context.mrs[self.index]
        self.context.commands.call(abi.CommandOpcode.MR_DESTROY, mr_index=self.index)
        self._release_indices()
        if self._owned:
            self.context.device.free(self.buffer)
