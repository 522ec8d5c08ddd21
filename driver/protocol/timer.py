"""The one timer of a QP: progress-based, with tail probes."""

import enum

from .round_trip import RoundTrip


def ack_timeout_ns(code):
    """Nanoseconds of ``timeout`` of ibv_qp_attr: 4.096 µs · 2^code; 0, which waits for ever, for code 0."""
    return 4096 << code if code else 0


class Expiry(enum.Enum):
    """What an expired timer asks for."""

    PROBE = enum.auto()
    EXHAUSTED = enum.auto()


class ProgressTimer:
    """Runs while something is unacknowledged, and starts anew with every progress.

    The first probe goes out when nothing moved for ``probe_ns``, or for two round trips and a margin once answers
    showed that these are longer. As a probe or its answer may get lost like anything else, it is repeated after the
    same time, and when that stays without answer after twice, four times ... as long, until ``timeout_ns`` lie between
    two of them. A peer that answers, although nothing moves, is alive: it is asked in the first of these intervals
    again.

    From one probe to the next each of these times is another one, up to an eighth longer: a network that fails at
    regular intervals must not take every probe, or all that follows its answer, again and again.

    The end does not depend on how many probes that makes: it comes when no probe was answered for
    ``retry_cnt + 1`` times ``timeout_ns``. A connection that is answered but not acknowledged any further ends as well:
    after the same time when what is to be acknowledged next got lost more than ``retry_cnt`` times meanwhile, and
    otherwise after ``STALL_FACTOR`` times as long.

    Parameters
    ----------
    probe_ns : int
        Least silence before the first probe; about two round trips and a margin.
    timeout_ns : int
        Longest time between two probes, and the unit of ``retry_cnt``, not less than ``probe_ns``: each retry has its
        probe. 0 waits for ever, as ``timeout`` 0 in the verbs, with at most 2^``LONGEST_LOG2`` times ``probe_ns``
        between two probes.
    retry_cnt : int
        As in the verbs.

    Attributes
    ----------
    deadline : int or None
        When :meth:`poll` has something to say, or None while the timer is stopped.
    probes : int
        Asked for so far.
    round_trip : RoundTrip
    """

    STALL_FACTOR = 32
    LONGEST_LOG2 = 6

    def __init__(self, probe_ns, timeout_ns, retry_cnt):
        self.round_trip = RoundTrip(probe_ns)
        self.limit(timeout_ns, retry_cnt)
        self.deadline = None
        self.probes = 0
        self._asked = self._stalled = None   # when the first probe since the last sign of life, progress, was due
        self._interval = probe_ns            # to the probe behind the next one
        self._hurried = self._at_once = False
        self._lost = 0                       # times that what is next in turn got lost since the last progress

    def limit(self, timeout_ns, retry_cnt):
        """Have other limits from now on."""
        least_ns = self.round_trip.least_ns
        self.timeout_ns, self.retry_cnt = timeout_ns and max(timeout_ns, least_ns), retry_cnt
        self._longest_ns = self.timeout_ns or least_ns << self.LONGEST_LOG2

    @property
    def probe_ns(self):
        """Silence before the first probe."""
        return min(self.round_trip.patience_ns, self._longest_ns)

    @property
    def running(self):
        return self.deadline is not None

    def progress(self, now):
        """The peer acknowledged something new, or was sent something new: the full time again."""
        self._stalled = None
        self._lost = 0
        self._hurried = False
        if self.round_trip.opened is not None:
            self.round_trip.asked_otherwise()
        self.restart(now)

    def restart(self, now):
        """Something was sent again or asked for: the next probe is due later, but that alone is no progress."""
        self._asked = None
        self._at_once = False
        interval = self.round_trip.patience_ns
        self._interval = interval = interval if interval < self._longest_ns else self._longest_ns
        self.deadline = now + (self._spread(interval) if self.probes else interval)

    def asked_late(self, now):
        """What asks left the card only now."""
        if self.running:
            self.deadline = max(self.deadline, now + self._spread(self._interval))

    def answered(self, now):
        """The peer spoke, but nothing moved."""
        trip = self.round_trip
        if trip.opened is not None or now <= trip.clear_at:
            trip.answered(now)
        self._interval = min(max(self.probe_ns, trip.quiet_ns), self._longest_ns)
        if self._asked is not None:
            self.deadline = min(self.deadline, now + self._spread(self._interval))
        if self.running and trip.quiet_ns:
            self.deadline = max(self.deadline, trip.clear_at)
        self._asked = None

    def lost_again(self):
        """What the peer is to acknowledge next did not arrive, once more."""
        self._lost += 1

    def not_ready(self, now, wait_ns):
        """The peer is alive and asks for so much time; however often it does so is not the timer's concern."""
        self.answered(now)
        self._stalled = None
        self.deadline = now + self._spread(wait_ns)

    def hurry(self, now):
        """Ask at once; once only, until a probe was due by itself."""
        if self.running and not self._hurried:
            self._hurried = self._at_once = True
            self.deadline = now

    def stop(self):
        self.deadline = None
        self._asked = self._stalled = None
        self.round_trip.asked_otherwise()

    def poll(self, now):
        """An :class:`Expiry` if the time is over, else None."""
        if self.deadline is None or now < self.deadline:
            return None
        if self._asked is None:
            self._asked = now
        if self._stalled is None:
            self._stalled = now
        if self.timeout_ns and now >= self._end:
            self.stop()
            return Expiry.EXHAUSTED
        self._hurried, self._at_once = self._at_once, False
        self.probes += 1
        self.round_trip.asked(now)
        self.deadline = now + self._spread(self._interval)
        if self.timeout_ns:
            self.deadline = min(self.deadline, self._end)
        self._interval = min(2 * self._interval, self._longest_ns)
        return Expiry.PROBE

    @property
    def _end(self):
        """When it is enough."""
        patience = (self.retry_cnt + 1) * self.timeout_ns
        stall = patience * (1 if self._lost > self.retry_cnt else self.STALL_FACTOR)
        return min(self._asked + patience, self._stalled + stall)

    def _spread(self, interval):
        """Steps far from each other, all of eight before one comes again; none for the first probe of a QP."""
        return interval + interval * (self.probes * 5 % 8) // 64
