"""Memory regions: memory of the host under an id and a key (document: "MR Management", "Reception Path")."""

from dataclasses import dataclass

from ...device.index_pool import IndexPool
from ...terms.enums import AccessFlag

FIRST_VADDR = 1 << 40     # above every offset, so that an address is never taken for one
VADDR_STEP = 1 << 32


@dataclass(eq=False)
class Region:
    """A memory region.

    Attributes
    ----------
    id, key : int
        What a peer names it by, and what shows that it may.
    vaddr : int
        Address of the first byte.
    data : memoryview
        Its memory.
    access : AccessFlag
    uses : int
        Requests of the host that read or write it; as long as there are any it stays.
    """

    id: int
    key: int
    vaddr: int
    data: memoryview
    access: AccessFlag
    uses: int = 0

    def offset_of(self, address, length):
        """Offset of ``length`` bytes at a remote address, or None if they are not inside.

        As the document has it: an address from the region's first on is an address, one below it an offset.
        """
        offset = address - self.vaddr if address >= self.vaddr else address
        return offset if offset + length <= len(self.data) else None


class RegionTable:
    """The regions of a host.

    Parameters
    ----------
    size : int
        Most there can be.
    random : random.Random
        Of the keys.
    """

    def __init__(self, size, random):
        self._ids, self._random, self._regions = IndexPool(size, "memory regions"), random, {}

    def add(self, data, access):
        """A new :class:`Region`.

        Raises
        ------
        MemoryError
            If there are as many as there can be.
        """
        number = self._ids.take()
        region = Region(number, self._random.randrange(1, 1 << 32), FIRST_VADDR + number * VADDR_STEP, data, access)
        self._regions[number] = region
        return region

    def get(self, number):
        """The region of an id, or None."""
        return self._regions.get(number)

    def remove(self, region):
        """Its id is free again."""
        del self._regions[region.id]
        self._ids.give(region.id)

    def __len__(self):
        return len(self._regions)
