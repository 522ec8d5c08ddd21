"""Simulated time that never overtakes wall-clock time."""

import time

from weft.model.loop import EventLoop

STEP_NS = 20_000      # longest simulated time between two checks of the programs


class WallClock:
    """Wall-clock time of an event loop."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop, self._seen_ns = loop, time.monotonic_ns()

    def advance(self) -> bool:
        """Advance simulated time by the elapsed wall-clock time, at most to :data:`STEP_NS` after the next event.

        After an event the programs are checked first, and the rest of the elapsed time is dropped. Return true if an
        event occurred.
        """
        loop, wall = self._loop, time.monotonic_ns()
        before, target, self._seen_ns = loop.now_ns, loop.now_ns + wall - self._seen_ns, wall
        due = loop.due_ns
        if due is None or due > target:
            loop.run(target)
            return False
        loop.run(min(target, max(due, before) + STEP_NS))
        return True
