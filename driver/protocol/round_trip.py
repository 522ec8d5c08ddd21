"""How long an answer takes: what a QP learns of its path."""


class RoundTrip:
    """Smoothed time from a probe to its answer, with its variation, as TCP has it (RFC 6298).

    An answer does not say which probe it answers. So only what comes while a single probe is open is taken; answers
    that came of other reasons make the estimate too short at most, and then it is corrected by the next one.

    When several probes are open, either some of them got lost, or the round trip is longer than the times between them.
    Then more answers come soon, and the next probe waits for the end of them, and for its own answer as long.

    Parameters
    ----------
    least_ns : int
        Time to wait for an answer while nothing is known, and never less.

    Attributes
    ----------
    smoothed_ns : int or None
        None before the first answer.
    patience_ns : int
        Two round trips and a margin.
    opened : int or None
        When the first probe without answer was sent.
    clear_at : int
        Until then answers may come to older probes.
    quiet_ns : int
        What the round trip may be, once it is known that they do come; else 0.
    """

    def __init__(self, least_ns):
        self.least_ns = least_ns
        self.smoothed_ns, self.patience_ns = None, least_ns
        self.clear_at = self.quiet_ns = 0
        self._variation_ns = 0
        self.opened = None
        self._gap = None             # how long behind the first open probe the last one was sent
        self._longest_trip = 0               # what the round trip may have been when answers were taken last

    @property
    def asking(self):
        """A probe is without answer."""
        return self.opened is not None

    def asked(self, now):
        """A probe is sent."""
        if self.opened is None:
            self.opened = now
        else:
            self._gap = now - self.opened

    def asked_otherwise(self):
        """The next answer may come of something else than a probe."""
        self.opened = self._gap = None

    def answered(self, now):
        """An answer came."""
        opened, gap = self.opened, self._gap
        if now <= self.clear_at and (opened is None or gap is None):
            self.quiet_ns = self._longest_trip
            return
        self.asked_otherwise()
        if opened is not None and gap is None:
            self._add(now - opened)
            self.quiet_ns = 0
        elif opened is not None:
            self.clear_at, self._longest_trip = now + gap, now - opened
            self.quiet_ns = self.quiet_ns and self._longest_trip

    def _add(self, sample_ns):
        if self.smoothed_ns is None:
            self.smoothed_ns, self._variation_ns = sample_ns, sample_ns // 8
        else:
            self._variation_ns += (abs(sample_ns - self.smoothed_ns) - self._variation_ns) // 4
            self.smoothed_ns += (sample_ns - self.smoothed_ns) // 8
        self.patience_ns = max(self.least_ns, 2 * self.smoothed_ns + 4 * self._variation_ns)
