"""Regions of a host, and copies between them without packets (document: "Current: Software Loopback")."""

from dataclasses import dataclass

from ...device.index_pool import IndexPool
from ...terms.enums import AccessFlag, WCStatus
from .packet import Opcode
from .qp import Completion

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


def process_local(qp, regions):
    """Execute all requests that were posted to a loopback QP."""
    while qp.sq:
        wr = qp.sq.popleft()
        status = _copy(wr, regions)
        length = wr.length if status is WCStatus.SUCCESS else 0
        qp.cq.push(Completion(wr.wr_id, length, status, wr.opcode), reserved=True)


def _copy(wr, regions):
    here, there = regions.get(wr.local_mr_id), regions.get(wr.remote_mr_id)
    if here is None or wr.local_offset + wr.length > len(here.data):
        return WCStatus.LOC_PROT_ERR
    write = wr.opcode is Opcode.WRITE
    needed = AccessFlag.REMOTE_WRITE if write else AccessFlag.REMOTE_READ
    if there is None or wr.remote_key != there.key or not there.access & needed:
        return WCStatus.REM_ACCESS_ERR
    offset = there.offset_of(wr.remote_addr, wr.length)
    if offset is None:
        return WCStatus.REM_ACCESS_ERR
    pieces = (there, offset), (here, wr.local_offset)
    (target, to), (source, at) = pieces if write else pieces[::-1]
    target.data[to:to + wr.length] = bytes(source.data[at:at + wr.length])
    return WCStatus.SUCCESS
