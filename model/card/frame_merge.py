"""Merge of payload frames and raw frames into one stream: whole frames, alternating if both kinds wait.

A payload frame is granted with its first beat, which holds headers, and keeps the grant until its last beat, however
late its payload arrives: see ``both`` in ``hdl/transmit/transmit.py``.
"""

from collections import deque

from .timing import CYCLE_NS

PAYLOAD, RAW = range(2)
NEVER = float("inf")


class Frame:
    """Frame at the merge.

    Attributes
    ----------
    first : float
        Time of its first beat.
    last : float or None
        Time of its last beat, if known.
    beats : int
    job : object
        Passed to ``passed`` of :class:`FrameMerge`.
    """

    __slots__ = ("beats", "first", "granted", "job", "last")

    def __init__(self, first, last, beats, job):
        self.first, self.last, self.beats, self.job = first, last, beats, job


class FrameMerge:
    """Frame merge of a card.

    Parameters
    ----------
    loop : EventLoop
    passed : callable(job, time_ns)
        Called ahead of time with the time at which the last beat of a frame passes.
    is_current : callable
        Returns whether the card has not been reset since.
    """

    def __init__(self, loop, passed, is_current):
        self._loop, self._passed, self._is_current = loop, passed, is_current
        self._waiting = deque(), deque()        # by PAYLOAD and RAW
        self._holds, self._turn = None, RAW     # the granted frame; the kind of the last grant
        self._free, self._next = 0.0, NEVER

    def enter(self, which, frame):
        """Append a frame to those of its kind."""
        self._waiting[which].append(frame)
        self._look_at(frame.first)

    def complete(self, frame, last):
        """Set the time of the last beat of a frame."""
        frame.last = last
        if self._holds is frame:
            self._pass()

    def _look_at(self, time_ns):
        at = max(time_ns, self._free, self._loop.now_ns)
        if self._holds is None and at < self._next:
            self._next = at
            self._loop.call_at(at, self._look, at)

    def _look(self, at):
        if at != self._next or not self._is_current():
            return
        self._next = NEVER
        which = 1 - self._turn
        if not self._there(which, at):
            which = self._turn
        if self._there(which, at):
            self._turn, self._holds = which, self._waiting[which].popleft()
            self._holds.granted = at
            if self._holds.last is not None:
                self._pass()
        else:
            self._again()

    def _there(self, which, at):
        queue = self._waiting[which]
        return bool(queue) and queue[0].first <= at

    def _pass(self):
        frame, self._holds = self._holds, None
        end = max(frame.granted + (frame.beats - 1) * CYCLE_NS, frame.last)
        self._free = end + CYCLE_NS
        self._passed(frame.job, end)
        self._again()

    def _again(self):
        firsts = [queue[0].first for queue in self._waiting if queue]
        if firsts:
            self._look_at(min(firsts))
