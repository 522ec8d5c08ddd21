"""Fabric on an event loop."""

import math
from collections.abc import Callable

from ...impairments import Frame
from ...loop import EventLoop
from .fabric import FrameFabric


class LoopFabric:
    """Fabric whose frames are delivered at their times.

    Parameters
    ----------
    loop, fabric
    deliver : callable(host, frame)
        Receiver of the frames.
    """

    def __init__(self, loop: EventLoop, fabric: FrameFabric, deliver: Callable[[int, Frame], object]) -> None:
        self.fabric, self._loop, self._deliver, self._due = fabric, loop, deliver, math.inf

    def send(self, host: int, frame: Frame) -> None:
        """Take a frame of a host whose transmission ends now."""
        self.fabric.send(host, frame, self._loop.now_ns)
        self._arrange()

    def _arrange(self) -> None:
        due = self.fabric.next_ns
        if due is not None and due < self._due:
            self._due = due
            self._loop.call_at(due, self._advance, due)

    def _advance(self, due: float) -> None:
        if due != self._due:        # an earlier event came between
            return
        self._due = math.inf
        for host, frame in self.fabric.advance(self._loop.now_ns):
            self._deliver(host, frame)
        self._arrange()
