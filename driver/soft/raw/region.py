"""Memory regions: memory of the host under an id and a key (document: "MR Management", "Reception Path")."""

from dataclasses import dataclass

from ...device.index_pool import IndexPool
from ...terms.enums import AccessFlag

FIRST_VADDR = 1 << 40     # above every offset, so that addresses and offsets are distinct
VADDR_STEP = 1 << 32


@dataclass(eq=False)
class Region:
    """Memory region.

    Attributes
    ----------
    id, key : int
        Identifier for the peer, and proof of its permission.
    vaddr : int
        Address of the first byte.
    data : memoryview
        Memory of the region.
    access : AccessFlag
    uses : int
        Number of requests of the host that read or write the region; while there are any it cannot be deregistered.
    """

    id: int
    key: int
    vaddr: int
    data: memoryview
    access: AccessFlag
    uses: int = 0

    def offset_of(self, address, length):
        """Return the offset of ``length`` bytes at a remote address, or None if they are not inside the region.

        As in the document, a value from the region's first address on is an address, and a lower value is an offset.
        """
        offset = address - self.vaddr if address >= self.vaddr else address
        return offset if offset + length <= len(self.data) else None


class RegionTable:
    """Memory regions of a host.

    Parameters
    ----------
    size : int
        Largest number of regions.
    random : random.Random
        Source of keys.
    """

    def __init__(self, size, random):
        self._ids, self._random, self._regions = IndexPool(size, "memory regions"), random, {}

    def add(self, data, access):
        """Add a :class:`Region` and return it.

        Raises
        ------
        MemoryError
            If the table is full.
        """
        number = self._ids.take()
        region = Region(number, self._random.randrange(1, 1 << 32), FIRST_VADDR + number * VADDR_STEP, data, access)
        self._regions[number] = region
        return region

    def get(self, number):
        """Return the region of an id, or None."""
        return self._regions.get(number)

    def remove(self, region):
        """Remove a region and free its id."""
        del self._regions[region.id]
        self._ids.release(region.id)

    def __len__(self):
        return len(self._regions)
