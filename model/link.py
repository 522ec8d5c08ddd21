"""One direction of an Ethernet link that misbehaves by seed."""

from .impairments import Impairments, LinkConfig


class LinkBase:
    """One direction of a link, without a clock.

    Parameters
    ----------
    deliver : callable(frame)
    config : LinkConfig
    seed : hashable
    sent_tap, arrived_tap : callable(time_ns, frame), optional
        Called with what the sender sent, and with what arrived.

    Attributes
    ----------
    impairments : Impairments
        Decides.
    in_flight : int
        Frames under way.
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
        """``callable(frame)`` or None: frames for which it is true are lost as well."""
        return self._dropped

    @drop.setter
    def drop(self, predicate):
        if self._end_drop:
            self._end_drop()
        self._dropped = predicate
        self._end_drop = predicate and self.impairments.drop_when(lambda frame, _kind: predicate(frame))

    def send(self, frame, now=None):
        """Accept a frame, now or ahead of its time; one that is not bytes has an ``opcode`` and can be made bytes."""
        now = self.now_ns if now is None else now
        if self._sent_tap:
            frame = bytes(frame)
            self._sent_tap(now, frame)
        for at, arriving in self.impairments.fate(frame, now):
            self.in_flight += 1
            self._carry(now, at, arriving)

    def _arrive(self, at, arriving):
        """The time of a delivery has come."""
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
        As :class:`LinkBase` has them.

    Attributes
    ----------
    ahead : bool
        ``deliver(frame, time_ns)`` is called ahead of the time at which a frame arrives. For links that keep order.
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
