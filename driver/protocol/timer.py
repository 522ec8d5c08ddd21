"""Progress timer of a QP, with tail probes."""

import enum


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


def ack_timeout_ns(code):
    """Return the nanoseconds of ``timeout`` of ibv_qp_attr: 4.096 µs · 2^code; 0 (no time-out) for code 0."""
    return 4096 << code if code else 0


class Expiry(enum.Enum):
    """Action that an expired timer requests."""

    PROBE = enum.auto()
    EXHAUSTED = enum.auto()


class ProgressTimer:
    """Timer that runs while something is unacknowledged, and restarts with every progress.

    The first probe is sent when there was no progress for ``probe_ns``, or for two round trips and a margin once
    responses have shown that these are longer. Since a probe or its response may be lost as well, the probe is repeated
    after the same time, and without a response after twice, four times ... that time, until the interval is
    ``timeout_ns``. A peer that responds, although there is no progress, is reachable: the interval is reset to the
    first one.

    Each of these times varies from one probe to the next, by up to an eighth: a network that fails at regular intervals
    must not drop every probe, or every packet after its response.

    The end does not depend on the number of probes: the timer is exhausted when no probe had a response for ``retry_cnt
    + 1`` times ``timeout_ns``. A connection with responses but without progress ends as well: after the same time if
    the next unacknowledged packet was lost more than ``retry_cnt`` times in the meantime, otherwise after
    ``STALL_FACTOR`` times that time. Time in which this host did not look at its timer, for example because it was
    paused, does not count: the peer had no probe to respond to.

    Parameters
    ----------
    probe_ns : int
        Shortest time without progress before the first probe; about two round trips and a margin.
    timeout_ns : int
        Longest time between two probes, and the unit of ``retry_cnt``. It is at least ``probe_ns``, so that each retry
        has a probe. 0 means no time-out, as ``timeout`` 0 in the verbs, with at most 2^``LONGEST_LOG2`` times
        ``probe_ns`` between two probes.
    retry_cnt : int
        As in the verbs.

    Attributes
    ----------
    deadline : int or None
        Time at which :meth:`poll` must be called, or None while the timer is stopped.
    probes : int
        Number of probes so far.
    round_trip : RoundTrip
    """

    STALL_FACTOR = 32
    LONGEST_LOG2 = 6

    def __init__(self, probe_ns, timeout_ns, retry_cnt):
        self.round_trip = RoundTrip(probe_ns)
        self.limit(timeout_ns, retry_cnt)
        self.deadline = None
        self.probes = 0
        self._probed = self._stalled = None   # time of the first probe since the last response, progress
        self._interval = probe_ns            # from the next probe to the one after it
        self._hurried = self._at_once = False
        self._lost = 0                       # losses of the next unacknowledged packet since the last progress

    def limit(self, timeout_ns, retry_cnt):
        """Set new limits."""
        least_ns = self.round_trip.least_ns
        self.timeout_ns, self.retry_cnt = timeout_ns and max(timeout_ns, least_ns), retry_cnt
        self._longest_ns = self.timeout_ns or least_ns << self.LONGEST_LOG2

    @property
    def probe_ns(self):
        """Time without progress before the first probe."""
        return min(self.round_trip.timeout_ns, self._longest_ns)

    @property
    def running(self):
        return self.deadline is not None

    def progress(self, now):
        """Restart after progress: new data was acknowledged or sent."""
        self._stalled = None
        self._lost = 0
        self._hurried = False
        if self.round_trip.opened is not None:
            self.round_trip.discard()
        self.restart(now)

    def restart(self, now):
        """Delay the next probe: something was retransmitted or requested, which is not progress by itself."""
        self._probed = None
        self._at_once = False
        interval = self.round_trip.timeout_ns
        self._interval = interval = interval if interval < self._longest_ns else self._longest_ns
        self.deadline = now + (self._spread(interval) if self.probes else interval)

    def sent_late(self, now):
        """Delay the next probe: a packet that asks for a response left the card only now."""
        if self.running:
            self.deadline = max(self.deadline, now + self._spread(self._interval))

    def answered(self, now):
        """Note a response of the peer without progress."""
        trip = self.round_trip
        if trip.opened is not None or now <= trip.clear_at:
            trip.answered(now)
        self._interval = min(max(self.probe_ns, trip.quiet_ns), self._longest_ns)
        if self._probed is not None:
            self.deadline = min(self.deadline, now + self._spread(self._interval))
        if self.running and trip.quiet_ns:
            self.deadline = max(self.deadline, trip.clear_at)
        self._probed = None

    def lost_again(self):
        """Count a loss of the next unacknowledged packet."""
        self._lost += 1

    def not_ready(self, now, wait_ns):
        """Wait for ``wait_ns``, as the peer's RNR NAK requests. The number of RNR NAKs is not limited here."""
        self.answered(now)
        self._stalled = None
        self.deadline = now + self._spread(wait_ns)

    def hurry(self, now):
        """Probe at once; at most once until the next regular probe."""
        if self.running and not self._hurried:
            self._hurried = self._at_once = True
            self.deadline = now

    def stop(self):
        self.deadline = None
        self._probed = self._stalled = None
        self.round_trip.discard()

    def poll(self, now):
        """Return an :class:`Expiry` if the deadline has passed, else None."""
        if self.deadline is None or now < self.deadline:
            return None
        late = now - self.deadline
        self._probed = now if self._probed is None else self._probed + late
        self._stalled = now if self._stalled is None else self._stalled + late
        if self.timeout_ns and now >= self._end:
            self.stop()
            return Expiry.EXHAUSTED
        self._hurried, self._at_once = self._at_once, False
        self.probes += 1
        self.round_trip.probe_sent(now)
        self.deadline = now + self._spread(self._interval)
        if self.timeout_ns:
            self.deadline = min(self.deadline, self._end)
        self._interval = min(2 * self._interval, self._longest_ns)
        return Expiry.PROBE

    @property
    def _end(self):
        """Time at which the timer is exhausted."""
        longest = (self.retry_cnt + 1) * self.timeout_ns
        stall = longest * (1 if self._lost > self.retry_cnt else self.STALL_FACTOR)
        return min(self._probed + longest, self._stalled + stall)

    def _spread(self, interval):
        """Return the interval plus a variation, with a period of eight probes. The first probe of a QP has none."""
        return interval + interval * (self.probes * 5 % 8) // 64
