"""What is to be sent again, in the order of the loss reports."""

import collections


class RetransmissionQueue:
    """Packets of pieces with their RSNs, consecutive ones merged into one descriptor.

    Parameters
    ----------
    longest : int
        Packets of one descriptor at most.

    Attributes
    ----------
    packets : int
        Waiting to be sent again.
    """

    def __init__(self, longest):
        self.longest = longest
        self.packets = 0
        self._queue = collections.deque()   # [piece, first, count, rsn]

    def __len__(self):
        return len(self._queue)

    def add(self, runs, rsn, piece_at):
        """Queue exactly these PSNs; hole i of the report has RSN ``rsn`` + i. How many nobody knows (any more).

        ``piece_at(psn)`` is the piece that holds a PSN, or None.
        """
        unknown = 0
        newest = None   # the newest descriptor of this report, which may still grow
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
        """(piece, first, count, rsn) of the oldest."""
        entry = self._queue.popleft()
        self.packets -= entry[2]
        return entry

    def clear(self):
        self._queue.clear()
        self.packets = 0
