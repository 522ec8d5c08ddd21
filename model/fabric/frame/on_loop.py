"""Fabric on an event loop."""

import math
from collections.abc import Callable
from typing import Any, Protocol

from ...impairments import Frame
from .fabric import FrameFabric


class Clock(Protocol):
    """Simulated time, as an :class:`~weft.model.loop.EventLoop` or a simulator has it."""

    @property
    def now_ns(self) -> float: ...

    def call_at(self, time_ns: float, function: Callable[..., object], *args: Any) -> None: ...


class LoopFabric:
    """Fabric whose frames are delivered at their times.

    Parameters
    ----------
    loop, fabric
    deliver : callable(host, frame)
        Receiver of the frames.
    """

    def __init__(self, loop: Clock, fabric: FrameFabric, deliver: Callable[[int, Frame], object]) -> None:
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
        for host, frame in self.fabric.advance(max(due, self._loop.now_ns)):
            self._deliver(host, frame)
        self._arrange()
