"""Mapped page ranges with reference counts, so that no page is mapped twice."""

import bisect
import contextlib

from .libc import MADV_DOFORK, MADV_DONTFORK, madvise


class Piece:
    """Range of pages that is mapped as a whole.

    Attributes
    ----------
    start, end : int
        Virtual addresses.
    pages : list of int
        Address of each page for the card.
    users : int
        Reference count.
    """

    def __init__(self, start, end, pages):
        self.start, self.end, self.pages, self.users = start, end, pages, 0


class Pieces:
    """All mapped ranges, by address.

    A forked child does not inherit the pages. Otherwise copy-on-write would give the parent another physical page than
    the card has.

    Parameters
    ----------
    mapper
        Of :mod:`weft.driver.linux.mapper`, ``vfio`` or ``iommufd``.
    page_bytes : int
    """

    def __init__(self, mapper, page_bytes):
        self.mapper, self.page_bytes = mapper, page_bytes
        self._starts, self._pieces = [], []

    def __len__(self):
        return len(self._pieces)

    def take(self, va, length):
        """Return the pieces that cover a range, and increment their reference counts. Unmapped parts are mapped.

        Raises
        ------
        PyverbsRDMAError
            Nothing is changed.
        """
        at, end = va // self.page_bytes * self.page_bytes, -(-(va + length) // self.page_bytes) * self.page_bytes
        taken = []
        try:
            while at < end:
                piece = self._at(at) or self._map(at, min(end, self._next(at)))
                piece.users += 1
                taken.append(piece)
                at = piece.end
        except BaseException:
            self.release(taken)
            raise
        return taken

    def _at(self, va):
        at = bisect.bisect(self._starts, va) - 1
        return self._pieces[at] if at >= 0 and va < self._pieces[at].end else None

    def _next(self, va):
        """Return the start of the next piece after an address."""
        at = bisect.bisect(self._starts, va)
        return self._starts[at] if at < len(self._starts) else 1 << 64

    def _map(self, start, end):
        piece = Piece(start, end, self.mapper.map(start, end - start))
        try:
            madvise(start, end - start, MADV_DONTFORK)
        except OSError:
            self.mapper.unmap(start, end - start)
            raise
        at = bisect.bisect(self._starts, start)
        self._starts.insert(at, start)
        self._pieces.insert(at, piece)
        return piece

    def release(self, pieces):
        """Decrement the reference counts of pieces, and unmap those without users."""
        for piece in pieces:
            piece.users -= 1
            if not piece.users:
                at = self._pieces.index(piece, max(0, bisect.bisect(self._starts, piece.start) - 1))
                del self._starts[at], self._pieces[at]
                self.mapper.unmap(piece.start, piece.end - piece.start)
                with contextlib.suppress(OSError):      # the program may have freed the memory before
                    madvise(piece.start, piece.end - piece.start, MADV_DOFORK)
