"""The one timer of a QP: progress-based, with a tail probe."""

import enum


class Expiry(enum.Enum):
    """What an expired timer asks for."""

    PROBE = enum.auto()
    EXHAUSTED = enum.auto()


class ProgressTimer:
    """Runs while something is unacknowledged, and starts anew with every progress.

    The first probe goes out when nothing moved for ``probe_ns``; further ones follow every
    ``timeout_ns``. A peer that answers, although nothing moves, is alive: ``retry_cnt`` counts the
    unanswered probes only. A connection that is answered but never moves ends as well, after
    ``STALL_FACTOR`` times as many probes.

    Parameters
    ----------
    probe_ns : int
        Silence before the first probe; about two round trips and a margin.
    timeout_ns : int
        Silence before each further one; 0 waits for ever, as ``timeout`` 0 in the verbs.
    retry_cnt : int
        Unanswered probes that are followed by another one.
    """

    STALL_FACTOR = 32

    def __init__(self, probe_ns, timeout_ns, retry_cnt):
        self.probe_ns, self.timeout_ns, self.retry_cnt = probe_ns, timeout_ns, retry_cnt
        self.deadline = None
        self.unanswered = 0
        self.stalled = 0
        self.probes = 0

    @property
    def running(self):
        return self.deadline is not None

    def progress(self, now):
        """Something moved: the full time again."""
        self.deadline = now + self.probe_ns
        self.unanswered = self.stalled = 0

    def answered(self):
        """The peer spoke, but nothing moved."""
        self.unanswered = 0

    def stop(self):
        self.deadline = None
        self.unanswered = self.stalled = 0

    def poll(self, now):
        """An :class:`Expiry` if the time is over, else None."""
        if self.deadline is None or now < self.deadline:
            return None
        if self.unanswered > self.retry_cnt or self.stalled > self.STALL_FACTOR * (self.retry_cnt + 1):
            self.stop()
            return Expiry.EXHAUSTED
        self.unanswered += 1
        self.stalled += 1
        self.probes += 1
        self.deadline = now + self.timeout_ns if self.timeout_ns else None
        return Expiry.PROBE
