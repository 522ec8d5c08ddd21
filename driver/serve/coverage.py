"""Union of ranges that may overlap."""

import bisect


class Coverage:
    """Multiset of ranges of numbers from 0 on; :meth:`add` and :meth:`remove` return the change of their union."""

    def __init__(self) -> None:
        self._starts, self._counts = [-1], [0]      # of intervals with an equal number of ranges; sorted

    def add(self, first: int, end: int) -> int:
        """Add the range from ``first`` up to ``end``; return how many of its numbers were in no range before."""
        return self._change(first, end, 1)

    def remove(self, first: int, end: int) -> int:
        """Remove a range that was added; return how many of its numbers are in no range any more."""
        return self._change(first, end, -1)

    def _change(self, first: int, end: int, step: int) -> int:
        starts, counts = self._starts, self._counts
        at, to, changed = self._cut(first), self._cut(end), 0
        for number in range(at, to):
            counts[number] += step
            if counts[number] == (step > 0):
                changed += starts[number + 1] - starts[number]
        for number in (to, at):
            if counts[number] == counts[number - 1]:
                del starts[number], counts[number]
        return changed

    def _cut(self, at: int) -> int:
        """Return the number of the interval that begins at ``at``; divide the one around it if there is none."""
        number = bisect.bisect_left(self._starts, at)
        if number == len(self._starts) or self._starts[number] != at:
            self._starts.insert(number, at)
            self._counts.insert(number, self._counts[number - 1])
        return number
