"""Loss reports in the order of their RSNs, whatever order they come in."""


class LossReports:
    """Reports of the peer: each takes effect once, and a missing one is asked for again.

    Asking ends after :attr:`ASKS_MAX` times without success: those that came too early are forgotten then, and a probe
    brings all of them back.

    Attributes
    ----------
    expected : int
        RSN of the first hole of the next report.
    held_holes : int
        Holes of those that came too early.
    """

    HELD_MAX = 1024   # reports that came too early
    ASKS_MAX = 8

    def __init__(self):
        self.expected = 0
        self.held_holes = 0
        self._held = {}      # rsn -> (runs, holes) of those that came too early
        self._asked = None   # RSN last asked for
        self._asks = 0       # how often
        self._again_at = 0

    def __len__(self):
        """Reports that came too early."""
        return len(self._held)

    def add(self, rsn, runs, count):
        """A report that is not behind :attr:`expected`; false if there is no room for it, or it is there already."""
        if rsn in self._held or len(self._held) >= self.HELD_MAX and rsn != self.expected:
            return False
        self._held[rsn] = (runs, count)
        self.held_holes += count
        return True

    def take(self):
        """(rsn, runs) of the reports whose turn it is."""
        while self.expected in self._held:
            rsn = self.expected
            runs, count = self._held.pop(rsn)
            self.held_holes -= count
            self.expected += count
            yield rsn, runs

    def ask(self, now, again_ns):
        """Whether the missing one is to be asked for now; ``again_ns`` is how long to wait before asking again."""
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
        """When :meth:`ask` wants to be called, or None."""
        return self._again_at if self._held and self._asked is not None else None

    def forget_held(self):
        """Those that came too early will come again, or do not matter any more."""
        self._held.clear()
        self.held_holes = 0
        self._asked = None
