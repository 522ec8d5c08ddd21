"""Reordering of loss reports by RSN."""


class LossReports:
    """Reorder buffer of the peer's loss reports: each takes effect once, and a missing one is requested again.

    After :attr:`ASKS_MAX` requests without success, the early reports are discarded. A probe later brings all of them
    back.

    Attributes
    ----------
    expected : int
        RSN of the first hole of the next report.
    held_holes : int
        Holes of the early reports.
    """

    HELD_MAX = 1024   # early reports
    ASKS_MAX = 8

    def __init__(self):
        self.expected = 0
        self.held_holes = 0
        self._held = {}      # rsn -> (runs, holes) of early reports
        self._asked = None   # RSN requested last
        self._asks = 0       # number of requests for it
        self._again_at = 0

    def __len__(self):
        """Return the number of early reports."""
        return len(self._held)

    def add(self, rsn, runs, count):
        """Add a report with an RSN of at least :attr:`expected`. Return false if the buffer is full or holds it."""
        if rsn in self._held or len(self._held) >= self.HELD_MAX and rsn != self.expected:
            return False
        self._held[rsn] = (runs, count)
        self.held_holes += count
        return True

    def take(self):
        """Remove and yield (rsn, runs) of the reports that are in order."""
        while self.expected in self._held:
            rsn = self.expected
            runs, count = self._held.pop(rsn)
            self.held_holes -= count
            self.expected += count
            yield rsn, runs

    def ask(self, now, again_ns):
        """Return true if the missing report must be requested now. ``again_ns`` is the time until the next request."""
        if not self._held:
            self._asked = None
            return False
        if self._asked != self.expected:
            self._asked, self._asks = self.expected, 0
        elif now < self._again_at:
            return False
        if self._asks == self.ASKS_MAX:
            self.forget_held()
            return False
        self._asks += 1
        self._again_at = now + again_ns
        return True

    @property
    def deadline(self):
        """Time at which :meth:`ask` must be called, or None."""
        return self._again_at if self._held and self._asked is not None else None

    def forget_held(self):
        """Discard the early reports: the peer sends them again, or they are obsolete."""
        self._held.clear()
        self.held_holes = 0
        self._asked = None
