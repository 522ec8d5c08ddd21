"""One direction of an Ethernet link with impairments by seed."""

from collections.abc import Callable

from .impairments import Arriving, Frame, Impairments, LinkConfig, LinkCounters
from .loop import EventLoop

Tap = Callable[[float, bytes], object]


class LinkBase:
    """One direction of a link, without a clock.

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
    """

    def __init__(self, deliver: Callable[..., object], config: LinkConfig | None = None, seed: int | str = 0,
                 sent_tap: Tap | None = None, arrived_tap: Tap | None = None) -> None:
        self.impairments = Impairments(config or LinkConfig(), seed)
        self.in_flight = 0
        self.arrival_watchers: list[Callable[[bytes], object]] = []
        self.deliver, self._sent_tap, self._arrived_tap = deliver, sent_tap, arrived_tap
        self._dropped: Callable[[bytes], object] | None = None
        self._end_drop: Callable[[], None] | None = None

    @property
    def now_ns(self) -> float:
        raise NotImplementedError

    def _carry(self, now: float, at: float, arriving: Arriving) -> None:
        """Arrange for :meth:`_arrive` to be called at a time."""
        raise NotImplementedError

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
        now = self.now_ns if now is None else now
        if self._sent_tap:
            frame = bytes(frame)
            self._sent_tap(now, frame)
        for at, arriving in self.impairments.outcome(frame, now):
            self.in_flight += 1
            self._carry(now, at, arriving)

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


class Link(LinkBase):
    """One direction of a link on an event loop.

    Parameters
    ----------
    deliver, config, seed, sent_tap, arrived_tap
        As in :class:`LinkBase`.

    Attributes
    ----------
    ahead
        If true, ``deliver(frame, time_ns)`` is called before the time of arrival. For links that keep order.
    """

    def __init__(self, loop: EventLoop, deliver: Callable[..., object], config: LinkConfig | None = None,
                 seed: int | str = 0, sent_tap: Tap | None = None, arrived_tap: Tap | None = None) -> None:
        super().__init__(deliver, config, seed, sent_tap, arrived_tap)
        self.loop, self.ahead = loop, False

    @property
    def now_ns(self) -> float:
        return self.loop.now_ns

    def _carry(self, _now: float, at: float, arriving: Arriving) -> None:
        if self.ahead:
            self.in_flight -= 1
            self.deliver(arriving, at)
        else:
            self.loop.call_at(at, self._arrive, at, arriving)
