"""Loss reports in the order of their RSNs, whatever order they come in."""


class LossReports:
    """Reports of the peer: each takes effect once, and a missing one is asked for again.

    Parameters
    ----------
    again_ns : int
        How long to wait before asking again.

    Attributes
    ----------
    expected : int
        RSN of the first hole of the next report.
    """

    def __init__(self, again_ns):
        self.again_ns = again_ns
        self.expected = 0
        self._held = {}      # rsn -> (runs, holes) of those that came too early
        self._asked = None   # (rsn, time) of the last request

    def add(self, rsn, runs, count):
        """A report that is not behind :attr:`expected`."""
        self._held[rsn] = (runs, count)

    def take(self):
        """(rsn, runs) of the reports whose turn it is."""
        while self.expected in self._held:
            rsn = self.expected
            runs, count = self._held.pop(rsn)
            self.expected += count
            yield rsn, runs

    def ask(self, now):
        """Whether the missing one is to be asked for now."""
        if not self._held:
            self._asked = None
            return False
        if self._asked is not None and self._asked[0] == self.expected and now - self._asked[1] < self.again_ns:
            return False
        self._asked = (self.expected, now)
        return True

    @property
    def deadline(self):
        """When :meth:`ask` wants to be called, or None."""
        return self._asked[1] + self.again_ns if self._held and self._asked else None

    def clear(self):
        self._held.clear()
