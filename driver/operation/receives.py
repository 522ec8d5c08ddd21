"""Receive requests that wait for messages."""

import collections
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receive:
    """A receive work request: ``sges`` are (va, length, lkey)."""

    wr_id: int
    sges: list


class Receives:
    """Receive requests in the order they were posted; of one QP, or shared by several.

    Attributes
    ----------
    limit : int
        When fewer are left, ``below`` is called, once.
    below : callable
    waiting : dict
        What is called when one is posted, as keys: a QP has a message that found none.
    """

    def __init__(self):
        self._queue = collections.deque()
        self.waiting = {}
        self.limit, self.below = 0, None

    def __len__(self):
        return len(self._queue)

    def post(self, wr):
        """Add one."""
        self._queue.append(wr)
        waiting, self.waiting = self.waiting, {}
        for wake in waiting:
            wake()

    def take(self, wake):
        """The oldest one, or None: then ``wake()`` is called when there is one."""
        if self._queue:
            receive = self._queue.popleft()
            if len(self._queue) < self.limit:
                self.limit = 0
                self.below()
            return receive
        self.waiting[wake] = None
        return None

    def leave(self, wake):
        """Nobody waits with this any more."""
        self.waiting.pop(wake, None)

    def clear(self):
        """All of them, which are not there any more."""
        left = list(self._queue)
        self._queue.clear()
        return left
