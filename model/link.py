"""One direction of an Ethernet link with impairments by seed."""

from .impairments import Impairments, LinkConfig


class LinkBase:
    """One direction of a link, without a clock.

    Parameters
    ----------
    deliver : callable(frame)
    config : LinkConfig
    seed : hashable
    sent_tap, arrived_tap : callable(time_ns, frame), optional
        Called with each sent frame, and with each frame that arrived.

    Attributes
    ----------
    impairments : Impairments
        Decides the outcome of each frame.
    in_flight : int
        Deliveries that are outstanding.
    arrival_watchers : list of callable(frame)
        Called with each frame that arrives, before it is delivered.
    deliver : callable
        As given; may be replaced at any time.
    """

    def __init__(self, deliver, config=None, seed=0, sent_tap=None, arrived_tap=None):
        self.impairments = Impairments(config or LinkConfig(), seed)
        self.in_flight, self.arrival_watchers = 0, []
        self.deliver, self._sent_tap, self._arrived_tap = deliver, sent_tap, arrived_tap
        self._dropped = self._end_drop = None

    @property
    def counters(self):
        return self.impairments.counters

    @property
    def drop(self):
        """Optional ``callable(frame)``; frames for which it is true are lost as well."""
        return self._dropped

    @drop.setter
    def drop(self, predicate):
        if self._end_drop:
            self._end_drop()
        self._dropped = predicate
        self._end_drop = predicate and self.impairments.drop_when(lambda frame, _kind: predicate(frame))

    def send(self, frame, now=None):
        """Send a frame, now or at a later time; a frame is bytes, or has an ``opcode`` and converts to bytes."""
        now = self.now_ns if now is None else now
        if self._sent_tap:
            frame = bytes(frame)
            self._sent_tap(now, frame)
        for at, arriving in self.impairments.fate(frame, now):
            self.in_flight += 1
            self._carry(now, at, arriving)

    def _arrive(self, at, arriving):
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
    loop : EventLoop
    deliver, config, seed, sent_tap, arrived_tap
        As in :class:`LinkBase`.

    Attributes
    ----------
    ahead : bool
        If true, ``deliver(frame, time_ns)`` is called before the time of arrival. For links that keep order.
    """

    def __init__(self, loop, deliver, config=None, seed=0, sent_tap=None, arrived_tap=None):
        super().__init__(deliver, config, seed, sent_tap, arrived_tap)
        self.loop, self.ahead = loop, False

    @property
    def now_ns(self):
        return self.loop.now_ns

    def _carry(self, _now, at, arriving):
        if self.ahead:
            self.in_flight -= 1
            self.deliver(arriving, at)
        else:
            self.loop.call_at(at, self._arrive, at, arriving)
