"""The shared knitting buffer: extents of 64-byte blocks and the free list, which only the driver knows."""

import collections
import enum

from weft.hdl import abi

EXTENT_BYTES = 256 * 1024


class BlockUse(enum.Enum):
    """What a block is used for."""

    FREE = enum.auto()
    PRELINKED = enum.auto()  # successor announced to the card, not written yet
    LINKED = enum.auto()     # holds a node of a list


class KnittingBuffer:
    """Blocks for the Adamap nodes of all QPs.

    Every QP is guaranteed one block besides its pre-linked one, so that a list can always move on
    and give blocks back: whatever the load, no QP waits for ever.

    Parameters
    ----------
    device : Device
        Memory comes from here.
    announce : callable(index, address, length)
        Tells the card of an extent and returns once the card knows it.
    extent_bytes : int
        Size of one extent.
    max_extents : int
        Extents the card can check.
    """

    def __init__(self, device, announce, *, extent_bytes=EXTENT_BYTES, max_extents=1):
        self.device, self.announce = device, announce
        self.extent_bytes, self.max_extents = extent_bytes, max_extents
        self.extents = []            # buffers
        self.use = {}                # line -> BlockUse
        self._where = {}             # line -> (buffer, offset)
        self._phase = {}             # line -> phase of the last use
        self._free = collections.deque()
        self._starved = set()        # QPs without a linked node: each is owed one block
        self.low_water = None
        self.grow()

    @property
    def free_blocks(self):
        return len(self._free)

    @property
    def total_blocks(self):
        return len(self.use)

    @property
    def can_grow(self):
        return len(self.extents) < self.max_extents

    def grow(self):
        """Add an extent."""
        if not self.can_grow:
            raise MemoryError("the card cannot check another knitting extent")
        buffer = self.device.alloc(self.extent_bytes, align=4096)
        self.announce(len(self.extents), buffer.physical(0), self.extent_bytes)
        self.extents.append(buffer)
        for offset in range(0, self.extent_bytes, abi.BLOCK_BYTES):
            line = buffer.physical(offset) // abi.BLOCK_BYTES
            self._where[line] = (buffer, offset)
            self._phase[line] = 0
            self.use[line] = BlockUse.FREE
            self._free.append(line)

    def admit(self, owner):
        """The first pre-linked block of a new QP (``owner`` is any hashable).

        Raises
        ------
        MemoryError
            If the blocks do not suffice for one more QP.
        """
        if len(self._free) < len(self._starved) + 2:
            raise MemoryError("the knitting buffer has no blocks for another QP")
        self._starved.add(owner)
        return self._take()

    def take(self, owner):
        """A free block for ``owner``, pre-linked from now on; None if it has to wait for returning blocks."""
        if len(self._free) <= (0 if owner in self._starved else len(self._starved)):
            return None
        return self._take()

    def _take(self):
        line = self._free.popleft()
        self.low_water = min(len(self._free), self.total_blocks if self.low_water is None else self.low_water)
        self.use[line] = BlockUse.PRELINKED
        return line

    def set_linked(self, owner, linked):
        """Whether ``owner`` has linked nodes, which will come back. One that has none is owed a block."""
        (self._starved.discard if linked else self._starved.add)(owner)

    def forget(self, owner):
        """``owner`` is gone; its blocks were released."""
        self._starved.discard(owner)

    def write(self, line, fields, next_line):
        """Fill a pre-linked block with NODE ``fields`` and the pointer to its successor; returns its 64 bytes."""
        if self.use[line] is not BlockUse.PRELINKED:
            raise RuntimeError(f"block {line:#x} is {self.use[line].name}, not PRELINKED")
        self._phase[line] ^= 1
        data = abi.NODE.pack(next_phase=self._phase[line], next_adjacent=int(next_line == line + 1),
                             next_line=next_line, **fields)
        buffer, offset = self._where[line]
        buffer.write(offset, data)
        self.use[line] = BlockUse.LINKED
        return data

    def release(self, line):
        """A block comes back."""
        if self.use.get(line) not in (BlockUse.LINKED, BlockUse.PRELINKED):
            raise RuntimeError(f"block {line:#x} came back, but it is {self.use.get(line)}")
        self.use[line] = BlockUse.FREE
        self._free.append(line)

    def check(self):
        """Assert that no block is lost or counted twice."""
        uses = collections.Counter(self.use.values())
        assert uses[BlockUse.FREE] == len(self._free) == len(set(self._free)), "free list and block uses differ"
        assert sum(uses.values()) == len(self.extents) * self.extent_bytes // abi.BLOCK_BYTES
        return {use.name.lower(): uses[use] for use in BlockUse}

    def close(self):
        for buffer in self.extents:
            self.device.free(buffer)
        self.extents.clear()
