"""Memory regions."""

import collections

from weft.hdl import abi

from ..memory.page_table import pack_ptes, page_list, pick_page_bytes
from ..queue.remembered import RememberedCommand
from ..terms.checks import between, mr_access
from ..terms.enums import AccessFlag
from ..terms.errors import InvalidValue

PTES_PER_COMMAND = 512
TAGS_APART = 127   # lives of an index before a key tag may come again


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
        pd.check_open()
        self.pd, self.context, self.access = pd, pd.context, mr_access(access)
        if page_bytes not in (None, abi.PAGE_4K, abi.PAGE_2M):
            raise InvalidValue(f"page_bytes is {page_bytes}; {abi.PAGE_4K} and {abi.PAGE_2M} are possible")
        with self.context.lending() as lent:
            self.buffer = self._allocate(memory, lent) if isinstance(memory, int) else memory
            self.buf = self.buffer.va if address is None else address
            if length is None:
                length = memory if isinstance(memory, int) else self.buffer.va + self.buffer.size - self.buf
            self.length = between("length", length, 1, (1 << 64) - 1)
            self.page_bytes = page_bytes or pick_page_bytes(self.buffer, self.buf, self.length)
            pages = len(page_list(self.buffer, self.buf, self.length, self.page_bytes))
            self.index = self.context.mr_indices.take()
            lent.callback(self.context.mr_indices.give, self.index)
            self._ptes = (self.context.pte_ranges.alloc(pages), pages)
            lent.callback(self.context.pte_ranges.free, *self._ptes)
            self.lkey = self.rkey = abi.make_key(self.index, self._new_tag())
            self.install()
            self._release = lent.pop_all().close
        self._commands = RememberedCommand(self.context.commands)
        self.closed = False
        pd.mrs[self] = None
        self.context.mrs[self.index] = self

    def _allocate(self, size, lent):
        page_bytes = abi.PAGE_2M if self.access & AccessFlag.HUGETLB else abi.PAGE_4K
        buffer = self.context.device.alloc(between("length", size, 1, (1 << 64) - 1), contiguous=False,
                                           page_bytes=page_bytes)
        lent.callback(self.context.device.free, buffer)
        return buffer

    def _new_tag(self):
        """A tag that none of the last lives of this index had, and not zero."""
        last = self.context.key_tags.setdefault(self.index, collections.deque(maxlen=TAGS_APART))
        last.append(self.context.config.random.choice(
            [tag for tag in range(1, 1 << abi.KEY_TAG_BITS) if tag not in last]))
        return last[-1]

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
        with self.context.lending() as lent:
            staging = self.context.device.alloc(PTES_PER_COMMAND * abi.PTE_BYTES, align=4096)
            lent.callback(self.context.device.free, staging)
            for first in range(0, len(pages), PTES_PER_COMMAND):
                part = pages[first : first + PTES_PER_COMMAND]
                staging.write(0, pack_ptes(part))
                self.context.commands.call(
                    abi.CommandOpcode.PAGE_TABLE_WRITE,
                    pte_index=self._ptes[0] + first,
                    count=len(part),
                    address=staging.physical(0),
                )

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
        """Deregister: when this returns, neither key works and the card does not touch the memory any more.

        Raises
        ------
        CommandError, CommandTimeout, DeviceFatal
            If the card does not confirm it. Nothing is freed then, and the call may be repeated.
        """
        if self.closed:
            return
        if not self.context.engine.stopped and self._commands.settle() is None:
            self._commands.call(abi.CommandOpcode.MR_DESTROY, mr_index=self.index)
        self.forget()

    @property
    def closing(self):
        """The card was told to forget it, and did not answer yet."""
        return self._commands.pending is not None

    def forget(self):
        """The card does not know it any more: give back what it occupied."""
        self.context.mrs.pop(self.index, None)
        self.closed = True
        self.pd.mrs.pop(self, None)
        self._release()
