"""Host memory that the card may fetch nodes from, in extents, and what the card has been told of it."""

import itertools

from weft.hdl.contract import abi

from .node import pack_block, pack_pointer


class Extent:
    """A piece of memory, in blocks; ``base`` is the line of the first one."""

    def __init__(self, index, buffer, size):
        self.index, self.buffer = index, buffer
        self.base, self.blocks = buffer.physical(0) // abi.BLOCK_BYTES, size // abi.BLOCK_BYTES
        self.phase = bytearray(self.blocks)   # of the last use of each block


class Extents:
    """The extents the card knows, oldest first; a block is named by its line.

    Parameters
    ----------
    device : Device
        Memory comes from here.
    announce : callable(index, address, length, done)
        Tells the card of an extent (length 0: that it is gone) and calls ``done()`` once the card knows it.
    extent_bytes : int
        Size of one.
    max_extents : int
        Extents the card can check.
    number_bits : int
        Low bits of a block's number that say where in its extent it lies.
    """

    def __init__(self, device, announce, *, extent_bytes, max_extents, number_bits):
        self.device, self.announce, self.extent_bytes, self.max_extents = device, announce, extent_bytes, max_extents
        self.number_bits = number_bits
        self._known = {}        # index -> Extent
        self.blocks = 0
        self._at_page = {}      # page number of a line -> Extent
        self._order = itertools.count()
        self._told = {}   # order → what each announcement the card has not answered yet leads to

    def __len__(self):
        return len(self._known)

    def __iter__(self):
        return iter(self._known.values())

    @property
    def changing(self):
        """The card is being told of an extent."""
        return bool(self._told)

    @property
    def can_add(self):
        return not self.changing and len(self) < self.max_extents

    def add(self, then):
        """Allocate one more; ``then(extent)`` is called once the card knows it.

        Raises
        ------
        MemoryError
            If the card can check no more.
        """
        if not self.can_add:
            raise MemoryError("the card cannot check another knitting extent")
        index = next(i for i in range(self.max_extents) if i not in self._known)
        extent = Extent(index, self.device.alloc(self.extent_bytes, align=abi.PAGE_4K), self.extent_bytes)

        def known():
            self._known[index] = extent
            self.blocks += extent.blocks
            for line in range(extent.base, extent.base + extent.blocks, abi.PAGE_LINES):
                self._at_page[line // abi.PAGE_LINES] = extent
            then(extent)

        self._tell(extent, self.extent_bytes, known)

    def remove(self, extent, then):
        """Free one that is not used any more, and call ``then()``, once the card does not know it."""

        def forgotten():
            del self._known[extent.index]
            self.blocks -= extent.blocks
            for line in range(extent.base, extent.base + extent.blocks, abi.PAGE_LINES):
                del self._at_page[line // abi.PAGE_LINES]
            self.device.free(extent.buffer)
            then()

        self._tell(extent, 0, forgotten)

    def _tell(self, extent, length, then):
        order = next(self._order)
        self._told[order] = then
        self.announce(extent.index, extent.base * abi.BLOCK_BYTES if length else 0, length,
                      lambda: self._answered(order))

    def _answered(self, order):
        self._told.pop(order)()

    def announce_again(self):
        """The card was reset and knows of no extent; what it was about to be told has come true."""
        while self._told:
            self._answered(min(self._told))
        for extent in self:
            self._tell(extent, self.extent_bytes, lambda: None)

    def write(self, line, fields):
        """Fill a block with NODE ``fields``, without a successor; returns its 64 bytes."""
        extent, at = self._place(line)
        extent.phase[at] ^= 1
        data = pack_block(next_phase=extent.phase[at], **fields)
        extent.buffer.write(at * abi.BLOCK_BYTES, data)
        return data

    def link(self, line, next_line):
        """Point to the successor of a block. The card may read it meanwhile: it finds these 8 bytes old or new."""
        extent, at = self._place(line)
        extent.buffer.write(at * abi.BLOCK_BYTES, pack_pointer(
            next_phase=extent.phase[at], next_adjacent=int(next_line == line + 1), next_line=next_line))

    def number(self, line):
        """What a LINK_DOORBELL calls a block."""
        extent, at = self._place(line)
        return extent.index << self.number_bits | at

    def read(self, line):
        """The 64 bytes of a block."""
        extent, at = self._place(line)
        return extent.buffer.read(at * abi.BLOCK_BYTES, abi.BLOCK_BYTES)

    def _place(self, line):
        """Extent of a block, and its number in it."""
        extent = self._at_page[line // abi.PAGE_LINES]
        return extent, line - extent.base

    def close(self):
        """Free the memory; the card is stopped."""
        for extent in self:
            self.device.free(extent.buffer)
        self._known.clear()
        self.blocks = 0
