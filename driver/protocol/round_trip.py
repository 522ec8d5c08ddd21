"""Round-trip time of a QP's path, measured with probes."""


class RoundTrip:
    """Smoothed time from a probe to its response, with its variation, as in TCP (RFC 6298).

    A response does not identify its probe. Therefore only responses while a single probe is outstanding count. Frames
    with another cause can only make the estimate too short, until the next response corrects it.

    When several probes are outstanding, either some were lost, or the round trip is longer than their interval. In the
    second case further responses follow soon, and the next probe waits until they are over, and as long for its own
    response.

    Parameters
    ----------
    least_ns : int
        Time to wait for a response before the first measurement, and the minimum afterwards.

    Attributes
    ----------
    smoothed_ns : int or None
        None before the first response.
    timeout_ns : int
        Two round trips and a margin.
    opened : int or None
        Time of the first probe without a response.
    clear_at : int
        Until then, responses may belong to older probes.
    quiet_ns : int
        Upper bound of the round trip once such responses were received, else 0.
    """

    def __init__(self, least_ns):
        self.least_ns = least_ns
        self.smoothed_ns, self.timeout_ns = None, least_ns
        self.clear_at = self.quiet_ns = 0
        self._variation_ns = 0
        self.opened = None
        self._gap = None             # time from the first outstanding probe to the last one
        self._longest_trip = 0               # upper bound of the round trip at the last response

    def probe_sent(self, now):
        """Note that a probe is sent."""
        if self.opened is None:
            self.opened = now
        else:
            self._gap = now - self.opened

    def discard(self):
        """Discard the measurement: the next response may have another cause than a probe."""
        self.opened = self._gap = None

    def answered(self, now):
        """Note a response."""
        opened, gap = self.opened, self._gap
        if now <= self.clear_at and (opened is None or gap is None):
            self.quiet_ns = self._longest_trip
            return
        self.discard()
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
        self.timeout_ns = max(self.least_ns, 2 * self.smoothed_ns + 4 * self._variation_ns)
