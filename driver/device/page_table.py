"""Page lists and page-table entries of registered memory."""

import bisect
from collections.abc import Iterable

from weft.hdl.contract import abi

from ..terms.errors import InvalidValue, OutOfResources
from .device import DmaBuffer


def page_list(buffer: DmaBuffer, va: int, length: int, page_bytes: int) -> list[int]:
    """Return the physical addresses of the pages that contain ``length`` bytes at ``va`` of a buffer.

    Raises
    ------
    ValueError
        If the range exceeds the buffer, or its pages are not physically contiguous.
    """
    if va < buffer.va or va + length > buffer.va + buffer.size:
        raise InvalidValue(f"{length} bytes at {va:#x} are not inside the buffer")
    pages = []
    for page in range(va // page_bytes * page_bytes, va + length, page_bytes):
        inside = max(page, buffer.va)
        physical = buffer.physical(inside - buffer.va) - (inside - page)
        if physical % page_bytes:
            raise InvalidValue(f"the page at {page:#x} is not physically aligned to {page_bytes} bytes")
        pages.append(physical)
    return pages


def pick_page_bytes(buffer: DmaBuffer, va: int, length: int) -> int:
    """Return 2 MiB if every page of the range is physically contiguous and inside the buffer, else 4 KiB."""
    first, end = va // abi.PAGE_2M * abi.PAGE_2M, -(-(va + length) // abi.PAGE_2M) * abi.PAGE_2M
    if buffer.page_bytes < abi.PAGE_2M or first < buffer.va or end > buffer.va + buffer.size:
        return abi.PAGE_4K
    try:
        page_list(buffer, va, length, abi.PAGE_2M)
    except ValueError:
        return abi.PAGE_4K
    return abi.PAGE_2M


def pack_ptes(pages: Iterable[int]) -> bytes:
    """Return the page-table entries (abi.PTE) of page addresses, as the card reads them from memory."""
    return b"".join((p | abi.pte_damage(p)).to_bytes(abi.PTE_BYTES, "little") for p in pages)


class RangeAllocator:
    """First-fit allocator of index ranges. Free ranges are merged."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = [(0, size)] if size else []   # (start, length), sorted

    @property
    def free_total(self) -> int:
        return sum(n for _, n in self._free)

    def alloc(self, count: int) -> int:
        """Return the first of ``count`` consecutive indices.

        Raises
        ------
        MemoryError
            If no free range is long enough.
        """
        for i, (start, length) in enumerate(self._free):
            if length >= count:
                self._free[i:i + 1] = [(start + count, length - count)] if length > count else []
                return start
        raise OutOfResources(f"no {count} consecutive page-table entries of {self.size} are free")

    def free(self, start: int, count: int) -> None:
        i = bisect.bisect(self._free, (start, 0))
        self._free.insert(i, (start, count))
        for k in (i, i - 1):
            if 0 <= k < len(self._free) - 1 and sum(self._free[k]) == self._free[k + 1][0]:
                self._free[k:k + 2] = [(self._free[k][0], self._free[k][1] + self._free[k + 1][1])]
