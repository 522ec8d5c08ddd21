"""Index of DMA buffers by virtual address."""

import bisect
import errno

from ..terms.errors import PyverbsRDMAError
from .device import DmaBuffer


class Buffers:
    """Existing buffers, which do not overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._buffers: list[DmaBuffer] = []

    def add(self, buffer: DmaBuffer) -> None:
        at = bisect.bisect(self._starts, buffer.va)
        self._starts.insert(at, buffer.va)
        self._buffers.insert(at, buffer)

    def remove(self, buffer: DmaBuffer) -> None:
        at = self._buffers.index(buffer, max(0, bisect.bisect(self._starts, buffer.va) - 1))
        del self._starts[at], self._buffers[at]

    def find(self, va: int, length: int) -> DmaBuffer:
        """Return the buffer that contains a range.

        Raises
        ------
        PyverbsRDMAError
            With EFAULT, if there is none.
        """
        at = bisect.bisect(self._starts, va) - 1
        if at >= 0 and va + length <= self._starts[at] + self._buffers[at].size:
            return self._buffers[at]
        raise PyverbsRDMAError(f"{length} bytes at {va:#x} are not memory that the card may use", errno.EFAULT)
