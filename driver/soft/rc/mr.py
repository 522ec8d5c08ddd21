"""Registered memory of a software endpoint, with the interface of the verbs' MR."""

from ...device.index_pool import IndexPool
from ...terms.checks import between, mr_access

FIRST_VA, VA_STEP = 1 << 40, 1 << 32
TAG_BITS = 8


class SoftMR:
    """Registered memory.

    Parameters
    ----------
    pd : PD
        PD of a :class:`~weft.driver.soft.rc.context.SoftContext`.
    memory : int or bytearray
        Memory, or the length of memory to allocate.
    access : AccessFlag

    Attributes
    ----------
    buf, length : int
        First virtual address and bytes.
    lkey, rkey : int
    """

    def __init__(self, pd, memory, access):
        pd.check_open()
        self.access = mr_access(access)
        if isinstance(memory, int):
            memory = bytearray(between("length", memory, 1, VA_STEP - 1))
        self.view = memoryview(memory).cast("B")
        if self.view.readonly:
            raise ValueError("the memory cannot be written")
        self.pd, self.length, self._table = pd, between("length", len(self.view), 1, VA_STEP - 1), pd.context.memory
        index = self._table.add(self)
        self.buf = FIRST_VA + index * VA_STEP
        self.lkey = self.rkey = self._table.key_of(index)
        self.closed = False
        pd.mrs[self] = None

    def read(self, length, offset=0):
        """Return ``length`` bytes of the region from ``offset`` on."""
        return bytes(self.view[offset:offset + length])

    def write(self, data, offset=0):
        """Store bytes in the region."""
        self.view[offset:offset + len(data)] = data

    def close(self):
        """Deregister the region; neither key is valid afterwards."""
        if not self.closed:
            self.closed = True
            self._table.remove(self.lkey)
            self.pd.mrs.pop(self, None)


class MemoryTable:
    """Registered memory of a host.

    Parameters
    ----------
    size : int
        Largest number of regions.
    random : random.Random
        Source of key tags.
    """

    def __init__(self, size, random):
        self._indices, self._random = IndexPool(size, "memory regions"), random
        self._regions, self._tags = {}, {}

    def add(self, mr):
        """Register a region and return its index; raise MemoryError if the table is full."""
        index = self._indices.take()
        last = self._tags.get(index)
        self._tags[index] = self._random.choice([tag for tag in range(1, 1 << TAG_BITS) if tag != last])
        self._regions[self.key_of(index)] = mr
        return index

    def key_of(self, index):
        """Return the current key of an index."""
        return index << TAG_BITS | self._tags[index]

    def remove(self, key):
        """Invalidate a key."""
        del self._regions[key]
        self._indices.release(key >> TAG_BITS)

    def view(self, pd, key, va, length, access):
        """Return bytes as a memoryview; None unless the key is of ``pd``, allows ``access`` and covers them."""
        mr = self._regions.get(key)
        if mr is None or mr.pd is not pd or access & ~mr.access:
            return None
        at = va - mr.buf
        return mr.view[at:at + length] if 0 <= at <= at + length <= mr.length else None
