"""Time and an Ethernet link in plain Python: an event loop, and one direction of a link that misbehaves by seed."""

import heapq
import math

from .impairments import Impairments, LinkConfig


class EventLoop:
    """Simulated nanoseconds and what is to happen when.

    Attributes
    ----------
    compiled : object or None
        Has further events, as machine code, with numbers of the same count, and runs both.
    """

    def __init__(self):
        self.now_ns = 0
        self.queue = []             # (time, number of the call, function, arguments), a heap
        self.number = 0             # of the next call
        self.compiled = None

    def call_at(self, time_ns, function, *args):
        """Run ``function`` at a time, in order of the calls when times are equal."""
        number = self.number
        self.number = number + 1
        heapq.heappush(self.queue, (time_ns if time_ns > self.now_ns else self.now_ns, number, function, args))

    def call_in(self, delay_ns, function, *args):
        self.call_at(self.now_ns + delay_ns, function, *args)

    @property
    def due_ns(self):
        """When the next event is, or None."""
        due = self.queue[0][0] if self.queue else math.inf
        if self.compiled:
            due = min(due, self.compiled.due)
        return None if due == math.inf else due

    def step(self):
        """Run the next event; false if there is none."""
        if self.compiled:
            return self.compiled.step()
        if not self.queue:
            return False
        self.now_ns, _, function, args = heapq.heappop(self.queue)
        function(*args)
        return True

    def run(self, until, condition=lambda: False):
        """Run events up to a time (inclusive), or until ``condition()`` holds after one; true for the latter."""
        if self.compiled:
            return self.compiled.run(until, condition)
        queue = self.queue
        while not condition():
            if not queue or queue[0][0] > until:
                self.now_ns = max(self.now_ns, until)
                return False
            self.now_ns, _, function, args = heapq.heappop(queue)
            function(*args)
        return True


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
