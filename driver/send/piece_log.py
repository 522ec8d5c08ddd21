"""What was handed over and is not acknowledged, by PSN."""

import bisect


class PieceLog:
    """Pieces of requests in PSN order."""

    KEPT = 256   # acknowledged ones kept at most before they are cleared away

    def __init__(self):
        self._pieces, self._psns = [], []
        self._first = 0   # the first one that is not acknowledged

    def add(self, piece):
        self._pieces.append(piece)
        self._psns.append(piece.psn)

    def acknowledge(self, cum):
        """Every PSN below ``cum`` is done with."""
        while self._first < len(self._pieces):
            piece = self._pieces[self._first]
            if piece.psn + piece.packets > cum:
                break
            self._first += 1
        if self._first > self.KEPT and self._first * 2 > len(self._pieces):
            del self._pieces[: self._first], self._psns[: self._first]
            self._first = 0

    def find(self, psn):
        """The unacknowledged piece that holds ``psn``, or None."""
        at = bisect.bisect_right(self._psns, psn, self._first) - 1
        if at < self._first:
            return None
        piece = self._pieces[at]
        return piece if psn < piece.psn + piece.packets else None

    def clear(self):
        self._pieces.clear()
        self._psns.clear()
        self._first = 0
