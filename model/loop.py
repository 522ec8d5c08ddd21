"""Event loop in simulated time."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class EventLoop:
    """Queue of function calls in the order of simulated time.

    Attributes
    ----------
    now_ns
        Time of the current call, or of the end of the last run.
    """

    def __init__(self) -> None:
        self.now_ns: float = 0
        # heap of (time, number of the call, function, arguments)
        self._queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = 0        # of the next call

    def call_at(self, time_ns: float, function: Callable[..., object], *args: Any) -> None:
        """Call ``function`` at a time; calls at the same time run in the order of their registration."""
        number = self._number
        self._number = number + 1
        heappush(self._queue, (time_ns if time_ns > self.now_ns else self.now_ns, number, function, args))

    def call_in(self, delay_ns: float, function: Callable[..., object], *args: Any) -> None:
        """Call ``function`` after a delay."""
        number = self._number
        self._number = number + 1
        heappush(self._queue, (self.now_ns + delay_ns if delay_ns > 0 else self.now_ns, number, function, args))

    @property
    def due_ns(self) -> float | None:
        """Time of the next event, or None."""
        return self._queue[0][0] if self._queue else None

    def step(self) -> bool:
        """Run the next event; return false if there is none."""
        if not self._queue:
            return False
        self.now_ns, _, function, args = heappop(self._queue)
        function(*args)
        return True

    def run(self, until: float, condition: Callable[[], object] | None = None) -> bool:
        """Run events up to a time (inclusive), or until ``condition()`` holds after one; return true for the latter."""
        queue = self._queue
        while condition is None or not condition():
            if not queue or queue[0][0] > until:
                self.now_ns = max(self.now_ns, until)
                return False
            self.now_ns, _, function, args = heappop(queue)
            function(*args)
        return True
