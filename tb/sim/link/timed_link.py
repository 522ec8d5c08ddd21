"""One direction of an Ethernet link on an event loop: the same decisions as in a simulation of the gateware."""


class TimedLink:
    """Runs :class:`~weft.tb.sim.link.link.Impairments` on a :class:`~weft.model.loop.EventLoop`.

    Parameters
    ----------
    loop : EventLoop
    impairments : Impairments
        Decides.
    deliver : callable(frame)
    sent_tap, arrived_tap : callable, optional
        As :class:`~weft.tb.sim.link.link.LinkDirection` has them.

    Attributes
    ----------
    in_flight : int
        Frames under way.
    arrival_watchers : list of callable(frame)
    """

    def __init__(self, loop, impairments, deliver, sent_tap=None, arrived_tap=None):
        self.impairments, self.in_flight, self.arrival_watchers = impairments, 0, []
        self._loop, self._deliver, self._sent_tap, self._arrived_tap = loop, deliver, sent_tap, arrived_tap

    @property
    def counters(self):
        return self.impairments.counters

    def send(self, frame, now=None):
        """Accept a frame, now or ahead of its time."""
        frame, now = bytes(frame), self._loop.now_ns if now is None else now
        if self._sent_tap:
            self._sent_tap(now, frame)
        for at, arriving in self.impairments.fate(frame, now):
            self.in_flight += 1
            self._loop.call_at(at, self._carry, arriving)

    def _carry(self, frame):
        self.in_flight -= 1
        if self._arrived_tap:
            self._arrived_tap(self._loop.now_ns, frame)
        for watcher in self.arrival_watchers:
            watcher(frame)
        self._deliver(frame)
