"""One direction of an Ethernet link that misbehaves by seed.

Reordering is bounded by position: a frame held back is delivered behind at most ``reorder_distance``
frames sent after it, so that the card's reorder registers can cover it exactly.
"""

import random
from collections import Counter
from dataclasses import dataclass

from weft.hdl.contract import wire


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
    """

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
