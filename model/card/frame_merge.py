"""Where payload frames and raw frames become one stream: whole frames, in turns where both wait.

A payload frame takes its turn with its first beat, which is headers, and keeps it until its last beat, however long
its payload takes to come: see ``both`` in ``hdl/transmit/transmit.py``.
"""

from collections import deque

from .timing import CYCLE_NS

PAYLOAD, RAW = range(2)
NEVER = float("inf")


class Frame:
    """A frame at the merge.

    Attributes
    ----------
    first : float
        When its first beat is there.
    last : float or None
        When its last one is, if that is known.
    beats : int
    job : object
        What it is of.
    """

    __slots__ = ("beats", "first", "granted", "job", "last")

    def __init__(self, first, last, beats, job):
        self.first, self.last, self.beats, self.job = first, last, beats, job


class FrameMerge:
    """The merge of a card.

    Parameters
    ----------
    loop : EventLoop
    passed : callable(job, time_ns)
        Told ahead when the last beat of a frame passes.
    lives : callable
        Whether the card was not reset since.
    """

    def __init__(self, loop, passed, lives):
        self._loop, self._passed, self._lives = loop, passed, lives
        self._waiting = deque(), deque()        # by PAYLOAD and RAW
        self._holds, self._turn = None, RAW     # who passes; whose turn the last one was
        self._free, self._next = 0.0, NEVER

    def enter(self, which, frame):
        """A frame comes, behind those of its kind."""
        self._waiting[which].append(frame)
        self._look_at(frame.first)

    def complete(self, frame, last):
        """It is known when the last beat of a frame comes."""
        frame.last = last
        if self._holds is frame:
            self._pass()

    def _look_at(self, time_ns):
        at = max(time_ns, self._free, self._loop.now_ns)
        if self._holds is None and at < self._next:
            self._next = at
            self._loop.call_at(at, self._look, at)

    def _look(self, at):
        if at != self._next or not self._lives():
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
