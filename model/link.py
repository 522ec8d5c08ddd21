"""Time and an Ethernet link in plain Python: an event loop, and one direction of a link that misbehaves by seed.

Reordering is bounded by position: a frame held back is delivered behind at most ``reorder_distance``
frames sent after it, so that the card's reorder registers can cover it exactly.
"""

import heapq
import math
import random
from collections import Counter
from dataclasses import dataclass

from weft.hdl.contract import wire


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


@dataclass(frozen=True)
class LinkConfig:
    """How bad one direction is; all chances are per frame and independent.

    Attributes
    ----------
    delay_ns : int
        One way.
    loss, duplicate, reorder, corrupt : float
    reorder_distance : int
        Frames that may overtake a reordered one.
    hold_ns : int
        A reordered frame that nobody overtakes is delivered after this time.
    control_loss : float or None
        Loss of frames that carry no RDMA data; by default they are treated as all others.
    loss_model : object of :mod:`weft.model.loss` or None
        Loses frames besides ``loss``.
    """

    delay_ns: int = 5_000
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    reorder_distance: int = 4
    hold_ns: int = 2_000
    control_loss: float | None = None
    loss_model: object = None


def opcode_of(frame):
    """BTH opcode of a RoCEv2 frame, or None."""
    if not isinstance(frame, bytes):
        return frame.opcode
    if (
        len(frame) <= wire.RETH_OFFSET
        or frame[12:14] != b"\x08\x00"
        or int.from_bytes(frame[36:38], "big") != wire.ROCE_UDP_PORT
    ):
        return None
    try:
        return wire.Opcode(frame[wire.BTH_OFFSET])
    except ValueError:
        return None


_SETTINGS = frozenset({"config", "drop", "ahead"})


class Link:
    """One direction of a link.

    Parameters
    ----------
    loop : EventLoop
    deliver : callable(frame)
    config : LinkConfig
    seed : hashable

    Attributes
    ----------
    sent, lost, corrupted, duplicated, reordered : Counter
        Frames by opcode (None: no RoCEv2).
    drop : callable(frame) or None
        Frames it is true for are lost as well.
    ahead : bool
        ``deliver(frame, time_ns)`` is called ahead of the time at which a frame arrives. For links that keep order.
    changed : callable
        Called when ``config``, ``drop`` or ``ahead`` is set.
    """

    changed = staticmethod(lambda: None)

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name in _SETTINGS:
            self.changed()

    def __init__(self, loop, deliver, config=None, seed=0):
        self.loop, self.deliver, self.config = loop, deliver, config or LinkConfig()
        self.random = random.Random(f"link {seed}")
        self.sent, self.lost, self.corrupted, self.duplicated, self.reordered = (Counter() for _ in range(5))
        model = self.config.loss_model
        self._model = model.start(random.Random(f"loss {seed}")) if model else lambda _now: False
        self.drop, self.ahead = None, False
        self._held = []  # [frames that may still overtake, frame]

    def send(self, frame, now=None):
        """Accept a frame, now or ahead of its time; one that is not bytes has an ``opcode`` and can be made bytes."""
        config, chance, kind = self.config, self.random.random, opcode_of(frame)
        now = self.loop.now_ns if now is None else now
        self.sent[kind] += 1
        alike = kind in wire.DATA_OPCODES or config.control_loss is None
        loss = config.loss if alike else config.control_loss
        model_lost = alike and self._model(now)
        draws = chance(), chance(), chance(), chance()
        for held in self._held:
            held[0] -= 1
        if draws[0] < loss or model_lost or (self.drop and self.drop(frame)):
            self.lost[kind] += 1
        else:
            if draws[1] < config.corrupt:
                self.corrupted[kind] += 1
                frame = bytearray(bytes(frame))
                # from the BTH on: damage in front of it may leave another valid address
                frame[self.random.randrange(wire.BTH_OFFSET + 5, len(frame))] ^= 1 << self.random.randrange(8)
                frame = bytes(frame)
            if draws[2] < config.reorder:
                self.reordered[kind] += 1
                entry = [self.random.randint(1, config.reorder_distance), frame]
                self._held.append(entry)
                self.loop.call_at(now + config.hold_ns, self._release, entry)
            else:
                self._arrive(frame, now)
                if draws[3] < config.duplicate:
                    self.duplicated[kind] += 1
                    self._arrive(frame, now)
        if self._held:
            for held in [h for h in self._held if h[0] <= 0]:
                self._release(held, now)

    def _release(self, entry, now=None):
        if any(entry is h for h in self._held):
            self._held = [h for h in self._held if h is not entry]
            self._arrive(entry[1], self.loop.now_ns if now is None else now)

    def _arrive(self, frame, now):
        at = now + self.config.delay_ns
        if self.ahead:
            self.deliver(frame, at)
        else:
            self.loop.call_at(at, self.deliver, frame)
