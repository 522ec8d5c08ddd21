"""One direction of an Ethernet link with impairments by seed."""

from collections.abc import Callable
from typing import Any, Protocol

from .impairments import Arriving, Frame, Impairments, LinkConfig, LinkCounters

Tap = Callable[[float, bytes], object]


class Loop(Protocol):
    """Loop with simulated time, such as :class:`~weft.model.loop.EventLoop`."""

    @property
    def now_ns(self) -> float: ...

    def call_at(self, time_ns: float, function: Callable[..., object], *args: Any) -> None: ...


class Link:
    """One direction of a link on a loop.

    Parameters
    ----------
    deliver : callable(frame)
        May be replaced at any time through the attribute of the same name.
    sent_tap, arrived_tap : callable(time_ns, frame), optional
        Called with each sent frame, and with each frame that arrived.

    Attributes
    ----------
    impairments
        Decides the outcome of each frame.
    in_flight
        Deliveries that are outstanding.
    arrival_watchers : list of callable(frame)
        Called with each frame that arrives, before it is delivered.
    ahead
        If true, ``deliver(frame, time_ns)`` is called before the time of arrival. For links that keep order.
    """

    def __init__(self, loop: Loop, deliver: Callable[..., object], config: LinkConfig | None = None,
                 seed: int | str = 0, sent_tap: Tap | None = None, arrived_tap: Tap | None = None) -> None:
        self.impairments = Impairments(config or LinkConfig(), seed)
        self.in_flight, self.ahead = 0, False
        self.arrival_watchers: list[Callable[[bytes], object]] = []
        self.loop, self.deliver, self._sent_tap, self._arrived_tap = loop, deliver, sent_tap, arrived_tap
        self._dropped: Callable[[bytes], object] | None = None
        self._end_drop: Callable[[], None] | None = None

    @property
    def counters(self) -> LinkCounters:
        return self.impairments.counters

    @property
    def drop(self) -> Callable[[bytes], object] | None:
        """Optional ``callable(frame)``; frames for which it is true are lost as well."""
        return self._dropped

    @drop.setter
    def drop(self, predicate: Callable[[bytes], object] | None) -> None:
        if self._end_drop:
            self._end_drop()
        self._dropped = predicate
        self._end_drop = predicate and self.impairments.drop_when(lambda frame, _kind: predicate(frame))

    def send(self, frame: Frame, now: float | None = None) -> None:
        """Send a frame, now or at a later time."""
        loop = self.loop
        if now is None:
            now = loop.now_ns
        if self._sent_tap:
            frame = bytes(frame)
            self._sent_tap(now, frame)
        for at, arriving in self.impairments.outcome(frame, now):
            if self.ahead:
                self.deliver(arriving, at)
            else:
                self.in_flight += 1
                loop.call_at(at, self._arrive, at, arriving)

    def _arrive(self, at: float, arriving: Arriving) -> None:
        """Deliver a frame at its time of arrival."""
        self.in_flight -= 1
        frame = self.impairments.released(arriving)
        if frame is None:
            return
        if self._arrived_tap:
            frame = bytes(frame)
            self._arrived_tap(at, frame)
        for watcher in self.arrival_watchers:
            frame = bytes(frame)
            watcher(frame)
        self.deliver(frame)
