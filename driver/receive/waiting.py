"""Holes that wait for a block. If there are too many runs, the closest ones are merged into spans."""

import bisect

from weft.hdl.contract import abi

from ..knitting.holes import encode_first


class WaitingHoles:
    """Set of PSNs as runs in PSN order. Nodes are taken from it one at a time, as blocks become free.

    The nodes are as full as the encodings allow, whatever reports the holes came from. With more than ``runs_max``
    runs, the closest ones become spans, which include the received PSNs between them. The peer retransmits those PSNs
    too, which is harmless, and never more than go-back-N from the oldest hole. Since no node holds more than 320 PSNs,
    a span never saves blocks compared with a bitmap of the same range. It only bounds the memory of the waiting holes.

    Parameters
    ----------
    runs_max : int

    Attributes
    ----------
    added : int
        PSNs added by spans.
    starts : list of int
        First PSN of each run.
    """

    def __init__(self, runs_max):
        self.runs_max = runs_max
        self.added = 0
        self.starts, self._ends = [], []

    def __len__(self):
        """Return the number of runs."""
        return len(self.starts)

    @property
    def lowest(self):
        return self.starts[0]

    @property
    def runs(self):
        return [(s, e - s) for s, e in zip(self.starts, self._ends, strict=True)]

    def add(self, runs):
        """Add (first, length) runs, which may overlap those present. Return true if spans had to be made."""
        for first, length in runs:
            self._add(first, first + length)
        if len(self.starts) > self.runs_max:
            self._coarsen(max(1, self.runs_max // 2))
            return True
        return False

    def _add(self, start, end):
        lo = bisect.bisect_left(self._ends, start)
        hi = bisect.bisect_right(self.starts, end)
        if lo < hi:
            start, end = min(start, self.starts[lo]), max(end, self._ends[hi - 1])
        self.starts[lo:hi] = [start]
        self._ends[lo:hi] = [end]

    def _coarsen(self, runs):
        """Close the smallest gaps until ``runs`` runs are left."""
        gaps = [b - a for a, b in zip(self._ends, self.starts[1:], strict=False)]
        by_size = sorted(range(len(gaps)), key=gaps.__getitem__)
        closed = set(by_size[:len(self.starts) - runs])
        self.added += sum(gaps[i] for i in closed)
        self.starts = [s for i, s in enumerate(self.starts) if i - 1 not in closed]
        self._ends = [e for i, e in enumerate(self._ends) if i not in closed]

    def take_node(self):
        """Remove the lowest holes, as many as one node holds. Return (runs, NODE fields)."""
        count = min(len(self.starts), abi.NODE_HOLES_MAX)
        runs, fields = encode_first(list(zip(self.starts[:count], self._ends[:count], strict=True)))
        end = sum(runs[-1])
        gone = bisect.bisect_right(self._ends, end)
        del self.starts[:gone], self._ends[:gone]
        if self.starts and self.starts[0] < end:
            self.starts[0] = end
        return runs, fields
