"""The one timer of a QP: progress-based, with tail probes."""

import enum


class Expiry(enum.Enum):
    """What an expired timer asks for."""

    PROBE = enum.auto()
    EXHAUSTED = enum.auto()


class ProgressTimer:
    """Runs while something is unacknowledged, and starts anew with every progress.

    The first probe goes out when nothing moved for ``probe_ns``. As a probe or its answer may get lost like anything
    else, it is repeated after the same time, and when that stays without answer after twice, four times ... as long,
    until ``timeout_ns`` lie between two of them. A peer that answers, although nothing moves, is alive: it is asked
    every ``probe_ns`` again.

    From one probe to the next each of these times is another one, up to an eighth longer: a network that fails at
    regular intervals must not take every probe, or all that follows its answer, again and again.

    The end does not depend on how many probes that makes: it comes when no probe was answered for
    ``retry_cnt + 1`` times ``timeout_ns``. A connection that is answered but never moves ends as well, after
    ``STALL_FACTOR`` times as long.

    Parameters
    ----------
    probe_ns : int
        Silence before the first probe; about two round trips and a margin.
    timeout_ns : int
        Longest time between two probes, and the unit of ``retry_cnt``; 0 waits for ever, as ``timeout`` 0 in the
        verbs, with at most 2^``LONGEST_LOG2`` times ``probe_ns`` between two probes.
    retry_cnt : int
        As in the verbs.

    Attributes
    ----------
    deadline : int or None
        When :meth:`poll` has something to say, or None while the timer is stopped.
    probes : int
        Asked for so far.
    """

    STALL_FACTOR = 32
    LONGEST_LOG2 = 6

    def __init__(self, probe_ns, timeout_ns, retry_cnt):
        self.probe_ns, self.timeout_ns, self.retry_cnt = probe_ns, timeout_ns, retry_cnt
        self.deadline = None
        self.probes = 0
        self._asked = self._stalled = None   # when the first probe since the last sign of life, progress, was due
        self._interval = probe_ns            # to the probe behind the next one

    @property
    def running(self):
        return self.deadline is not None

    def progress(self, now):
        """Something moved: the full time again."""
        self.deadline = now + self._spread(self.probe_ns)
        self._asked = self._stalled = None
        self._interval = self.probe_ns

    def answered(self, now):
        """The peer spoke, but nothing moved."""
        if self._asked is not None:
            self.deadline = min(self.deadline, now + self._spread(self.probe_ns))
        self._asked = None
        self._interval = self.probe_ns

    def stop(self):
        self.deadline = None
        self._asked = self._stalled = None

    def poll(self, now):
        """An :class:`Expiry` if the time is over, else None."""
        if self.deadline is None or now < self.deadline:
            return None
        if self._asked is None:
            self._asked = now
        if self._stalled is None:
            self._stalled = now
        patience = (self.retry_cnt + 1) * self.timeout_ns
        end = min(self._asked + patience, self._stalled + self.STALL_FACTOR * patience)
        if self.timeout_ns and now >= end:
            self.stop()
            return Expiry.EXHAUSTED
        self.probes += 1
        self.deadline = now + self._spread(self._interval)
        if self.timeout_ns:
            self.deadline = min(self.deadline, end)
        self._interval = min(2 * self._interval, self.timeout_ns or self.probe_ns << self.LONGEST_LOG2)
        return Expiry.PROBE

    def _spread(self, interval):
        """Steps far from each other, all of eight before one comes again; none for the first probe of a QP."""
        return interval + interval * (self.probes * 5 % 8) // 64
