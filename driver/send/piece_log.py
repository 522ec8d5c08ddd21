"""Log of unacknowledged pieces, by PSN."""

import bisect
from operator import attrgetter

_PSN = attrgetter("psn")


class PieceLog:
    """Pieces of requests in PSN order."""

    KEPT = 256   # acknowledged pieces to keep before they are removed together

    def __init__(self):
        self._pieces = []
        self._first = 0   # index of the first unacknowledged piece

    def add(self, pieces):
        self._pieces.extend(pieces)

    def acknowledge(self, cum):
        """Mark every PSN below ``cum`` as acknowledged."""
        pieces, first = self._pieces, self._first
        count = len(pieces)
        while first < count and (piece := pieces[first]).psn + piece.packets <= cum:
            first += 1
        if first > self.KEPT and first * 2 > count:
            del pieces[:first]
            first = 0
        self._first = first

    def find(self, psn):
        """Return the unacknowledged piece that holds ``psn``, or None."""
        at = bisect.bisect_right(self._pieces, psn, self._first, key=_PSN) - 1
        if at < self._first:
            return None
        piece = self._pieces[at]
        return piece if psn < piece.psn + piece.packets else None

    def clear(self):
        self._pieces.clear()
        self._first = 0
