"""Queue of retransmissions, in the order of the loss reports."""

import collections


class RetransmissionQueue:
    """Packets of pieces with their RSNs. Consecutive packets are merged into one descriptor.

    Parameters
    ----------
    longest : int
        Largest number of packets of one descriptor.

    Attributes
    ----------
    packets : int
        Number of packets that wait for retransmission.
    """

    def __init__(self, longest):
        self.longest = longest
        self.packets = 0
        self._queue = collections.deque()   # [piece, first, count, rsn]

    def __len__(self):
        return len(self._queue)

    def add(self, runs, rsn, piece_at):
        """Queue these PSNs, and no others. Hole *i* of the report has RSN ``rsn`` + *i*.

        Parameters
        ----------
        runs : list of (int, int)
            (PSN, length).
        rsn : int
        piece_at : callable(psn)
            Returns the piece that holds a PSN, or None.

        Returns
        -------
        int
            Number of PSNs that no piece holds (any more).
        """
        unknown = 0
        newest = None   # newest descriptor of this report: packets may be merged into it
        for psn, length in runs:
            while length:
                piece = piece_at(psn)
                if piece is None:
                    unknown += 1
                    psn, rsn, length, newest = psn + 1, rsn + 1, length - 1, None
                    continue
                first = psn - piece.psn
                count = min(length, piece.packets - first, self.longest)
                if newest and self._continues(newest, piece, first, count, rsn):
                    newest[2] += count
                else:
                    newest = [piece, first, count, rsn]
                    self._queue.append(newest)
                self.packets += count
                psn, rsn, length = psn + count, rsn + count, length - count
        return unknown

    def _continues(self, entry, piece, first, count, rsn):
        last, at, packets, last_rsn = entry
        return (last is piece and at + packets == first and last_rsn + packets == rsn
                and packets + count <= self.longest)

    def next(self):
        """Remove and return (piece, first, count, rsn) of the oldest descriptor."""
        entry = self._queue.popleft()
        self.packets -= entry[2]
        return entry

    def clear(self):
        self._queue.clear()
        self.packets = 0
