"""How long an answer takes: what a QP learns of its path."""


class RoundTrip:
    """Smoothed time from a probe to its answer, with its variation, as TCP has it (RFC 6298).

    An answer does not say which probe it answers. So only what comes while a single probe is open is taken; answers
    that came of other reasons make the estimate too short at most, and then it is corrected by the next one.

    Parameters
    ----------
    least_ns : int
        Time to wait for an answer while nothing is known, and never less.

    Attributes
    ----------
    smoothed_ns : int or None
        None before the first answer.
    """

    def __init__(self, least_ns):
        self.least_ns = least_ns
        self.smoothed_ns = None
        self._variation_ns = 0

    def add(self, sample_ns):
        """An answer took this long."""
        if self.smoothed_ns is None:
            self.smoothed_ns, self._variation_ns = sample_ns, sample_ns // 8
            return
        self._variation_ns += (abs(sample_ns - self.smoothed_ns) - self._variation_ns) // 4
        self.smoothed_ns += (sample_ns - self.smoothed_ns) // 8

    @property
    def patience_ns(self):
        """Two round trips and a margin."""
        if self.smoothed_ns is None:
            return self.least_ns
        return max(self.least_ns, 2 * self.smoothed_ns + 4 * self._variation_ns)
