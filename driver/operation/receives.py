"""Queue of receive requests."""

import collections
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receive:
    """Receive work request. ``sges`` are (va, length, lkey)."""

    wr_id: int
    sges: list


class Receives:
    """Receive requests of one QP, or of several that share them, in the order in which they were posted.

    Attributes
    ----------
    limit : int
        When fewer are left, ``below`` is called once.
    below : callable
    waiting : dict
        Callbacks for the next post, as keys: QPs with a message that found no receive request.
    """

    def __init__(self):
        self._queue = collections.deque()
        self.waiting = {}
        self.limit, self.below = 0, None

    def __len__(self):
        return len(self._queue)

    @property
    def first(self):
        """The oldest request, or None."""
        return self._queue[0] if self._queue else None

    def post(self, wr):
        """Add a receive request."""
        self._queue.append(wr)
        waiting, self.waiting = self.waiting, {}
        for wake in waiting:
            wake()

    def take(self, wake):
        """Remove and return the oldest request. If there is none, return None, and call ``wake()`` after the next post.
        """
        if self._queue:
            receive = self._queue.popleft()
            if len(self._queue) < self.limit:
                self.limit = 0
                self.below()
            return receive
        self.waiting[wake] = None
        return None

    def leave(self, wake):
        """Cancel a callback of :meth:`take`."""
        self.waiting.pop(wake, None)

    def clear(self):
        """Remove and return all requests."""
        left = list(self._queue)
        self._queue.clear()
        return left
