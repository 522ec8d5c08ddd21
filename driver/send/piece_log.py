"""What was handed over and is not acknowledged, by PSN."""

import bisect
from operator import attrgetter

_PSN = attrgetter("psn")


class PieceLog:
    """Pieces of requests in PSN order."""

    KEPT = 256   # acknowledged ones kept at most before they are cleared away

    def __init__(self):
        self._pieces = []
        self._first = 0   # the first one that is not acknowledged

    def add(self, pieces):
        self._pieces.extend(pieces)

    def acknowledge(self, cum):
        """Every PSN below ``cum`` is done with."""
        pieces, first = self._pieces, self._first
        count = len(pieces)
        while first < count and (piece := pieces[first]).psn + piece.packets <= cum:
            first += 1
        if first > self.KEPT and first * 2 > count:
            del pieces[:first]
            first = 0
        self._first = first

    def find(self, psn):
        """The unacknowledged piece that holds ``psn``, or None."""
        at = bisect.bisect_right(self._pieces, psn, self._first, key=_PSN) - 1
        if at < self._first:
            return None
        piece = self._pieces[at]
        return piece if psn < piece.psn + piece.packets else None

    def clear(self):
        self._pieces.clear()
        self._first = 0
