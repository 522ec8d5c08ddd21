"""Extents: host memory that the card may fetch nodes from."""

import itertools

from weft.hdl.contract import abi

from .node import pack_block, pack_pointer


class Extent:
    """Physically contiguous memory, in blocks. ``base`` is the line of the first one."""

    def __init__(self, index, buffer, size):
        self.index, self.buffer = index, buffer
        self.base, self.blocks = buffer.physical(0) // abi.BLOCK_BYTES, size // abi.BLOCK_BYTES
        self.phase = bytearray(self.blocks)   # of the last use of each block


class Extents:
    """Extents that the card has, oldest first. A block is identified by its line.

    Parameters
    ----------
    device : Device
        Allocates the memory.
    announce : callable(index, address, length, done)
        Reports an extent to the card (length 0: its removal), and calls ``done()`` after the card's response.
    extent_bytes : int
        Size of an extent.
    max_extents : int
        Number of extents that the card supports.
    number_bits : int
        Low bits of a block's number that are its position in its extent.
    """

    def __init__(self, device, announce, *, extent_bytes, max_extents, number_bits):
        self.device, self.announce, self.extent_bytes, self.max_extents = device, announce, extent_bytes, max_extents
        self.number_bits = number_bits
        self._known = {}        # index -> Extent
        self.blocks = 0
        self._at_page = {}      # page number of a line -> Extent
        self._order = itertools.count()
        self._unconfirmed = {}   # order -> callback of an announcement without a response

    def __len__(self):
        return len(self._known)

    def __iter__(self):
        return iter(self._known.values())

    @property
    def changing(self):
        """True if an announcement has no response yet."""
        return bool(self._unconfirmed)

    @property
    def can_add(self):
        return not self.changing and len(self) < self.max_extents

    def add(self, then):
        """Allocate an extent. ``then(extent)`` is called when the card has it.

        Raises
        ------
        MemoryError
            If the card supports no more extents.
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

        self._announce_extent(extent, self.extent_bytes, known)

    def remove(self, extent, then):
        """Free an unused extent, and call ``then()``, when the card does not have it any more."""

        def forgotten():
            del self._known[extent.index]
            self.blocks -= extent.blocks
            for line in range(extent.base, extent.base + extent.blocks, abi.PAGE_LINES):
                del self._at_page[line // abi.PAGE_LINES]
            self.device.free(extent.buffer)
            then()

        self._announce_extent(extent, 0, forgotten)

    def _announce_extent(self, extent, length, then):
        order = next(self._order)
        self._unconfirmed[order] = then
        self.announce(extent.index, extent.base * abi.BLOCK_BYTES if length else 0, length,
                      lambda: self._answered(order))

    def _answered(self, order):
        self._unconfirmed.pop(order)()

    def announce_again(self):
        """Announce all extents again after a reset of the card. Pending announcements count as executed."""
        while self._unconfirmed:
            self._answered(min(self._unconfirmed))
        for extent in self:
            self._announce_extent(extent, self.extent_bytes, lambda: None)

    def write(self, line, fields):
        """Fill a block with NODE ``fields``, without a successor. Return its 64 bytes."""
        extent, at = self._place(line)
        extent.phase[at] ^= 1
        data = pack_block(next_phase=extent.phase[at], **fields)
        extent.buffer.write(at * abi.BLOCK_BYTES, data)
        return data

    def link(self, line, next_line):
        """Write the pointer to the successor of a block. A concurrent read of the card finds these 8 bytes old or new.
        """
        extent, at = self._place(line)
        extent.buffer.write(at * abi.BLOCK_BYTES, pack_pointer(
            next_phase=extent.phase[at], next_adjacent=int(next_line == line + 1), next_line=next_line))

    def number(self, line):
        """Return the number of a block in a LINK_DOORBELL."""
        extent, at = self._place(line)
        return extent.index << self.number_bits | at

    def read(self, line):
        """Return the 64 bytes of a block."""
        extent, at = self._place(line)
        return extent.buffer.read(at * abi.BLOCK_BYTES, abi.BLOCK_BYTES)

    def _place(self, line):
        """Return the extent of a block, and its number in it."""
        extent = self._at_page[line // abi.PAGE_LINES]
        return extent, line - extent.base

    def close(self):
        """Free the memory. Requires that the card is stopped."""
        for extent in self:
            self.device.free(extent.buffer)
        self._known.clear()
        self.blocks = 0
