"""Impairments of one direction of an Ethernet link: delay, loss, duplicates, reordering and damage, by seed.

:class:`Impairments` decides, from a frame and the time it was sent, when which bytes arrive. A link carries the
decisions out: :class:`weft.model.link.Link` on an event loop, :class:`weft.tb.sim.link.link.LinkDirection` in an RTL
simulation.
"""

import enum
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

from weft.hdl.contract import wire

from .settings import BadSetting, Setting, chance, check

REORDER_MAX_NS, DELAY_MAX_NS = 1000, 1 << 62
WIRE_OVERHEAD_BYTES = 24    # FCS, preamble, gap
CHANCES = ("loss", "duplicate", "reorder", "corrupt")


class FrameKind(enum.StrEnum):
    """Purpose of a frame, as the counters of a link distinguish it."""

    DATA = "data"
    RETX = "retx"
    LOSS_REPORT = "loss_report"
    ACK = "ack"
    PROBE = "probe"
    OTHER = "other"


_KIND = {
    **dict.fromkeys(wire.DATA_OPCODES, FrameKind.DATA),
    **dict.fromkeys(wire.RETX_OPCODES, FrameKind.RETX),
    wire.Opcode.LOSS_REPORT: FrameKind.LOSS_REPORT,
    wire.Opcode.ACKNOWLEDGE: FrameKind.ACK,
    wire.Opcode.PROBE: FrameKind.PROBE,
}
CONTROL_KINDS = frozenset(FrameKind) - {FrameKind.DATA, FrameKind.RETX}
_BTH_END = wire.BTH_OFFSET + wire.BTH.size_bytes
_IPV4, _ROCE_PORT = wire.ETHERTYPE_IPV4.to_bytes(2, "big"), wire.ROCE_UDP_PORT.to_bytes(2, "big")


def frame_kind(frame):
    """Return the :class:`FrameKind` of an Ethernet frame: bytes, or an object with an ``opcode``."""
    if not isinstance(frame, bytes | bytearray):
        return _KIND.get(frame.opcode, FrameKind.OTHER)
    if (len(frame) < _BTH_END or frame[12:14] != _IPV4 or frame[14] & 15 != 5
            or frame[23] != wire.IP_PROTO_UDP or frame[36:38] != _ROCE_PORT):
        return FrameKind.OTHER
    return _KIND.get(frame[wire.BTH_OFFSET], FrameKind.OTHER)


@dataclass(frozen=True)
class LinkConfig:
    """Impairments of one direction. All chances are per frame and independent.

    Attributes
    ----------
    delay_ns : float
        One way, half of the round trip time.
    rate_gbps : float or None
        Rate of the slowest stretch of the path, where frames queue. None: no stretch is slower than the sender.
    loss, duplicate, reorder, corrupt : float
        Chances, 0 to 1. A duplicated frame arrives a second time, up to ``reorder_max_ns`` later; a reordered one is
        held back by 1 ns to ``reorder_max_ns``; a corrupted one has one bit flipped, anywhere in the frame.
    reorder_max_ns : int
        Bound of the time that a frame is held back.
    reorder_distance : int or None
        Bound in frames: a reordered frame arrives behind 1 to ``reorder_distance`` frames sent after it, or after
        ``reorder_max_ns`` if fewer come, so that the card's reorder registers can cover it exactly; a duplicate
        follows at once. None: the bound is in time only.
    control_loss : float or None
        Chance of loss of frames that carry no RDMA data, which are then not corrupted either. None: they are treated
        as all others.
    loss_model : object of :mod:`weft.model.loss` or None
        Loses frames besides ``loss``; those without RDMA data only if ``control_loss`` is None.

    Raises
    ------
    BadSetting
    """

    delay_ns: Annotated[float, Setting("Delay one way, half of the round trip time.", unit="nanoseconds", least=0,
                                       most=DELAY_MAX_NS)] = 5_000
    rate_gbps: float | None = None
    loss: Annotated[float, chance("Chance of a loss.")] = 0.0
    duplicate: Annotated[float, chance("Chance of a second copy.")] = 0.0
    reorder: Annotated[float, chance("Chance of a delay behind later frames.")] = 0.0
    corrupt: Annotated[float, chance("Chance of a flipped bit.")] = 0.0
    reorder_max_ns: Annotated[int, Setting("Longest time for which a frame is held back.", unit="nanoseconds", least=1,
                                           most=DELAY_MAX_NS)] = REORDER_MAX_NS
    reorder_distance: int | None = None
    control_loss: float | None = None
    loss_model: object = None

    def __post_init__(self):
        check(self)
        if self.control_loss is not None and not 0 <= self.control_loss <= 1:
            raise BadSetting("control_loss", self.control_loss, "it must lie between 0 and 1")
        if self.reorder_distance is not None and self.reorder_distance < 1:
            raise BadSetting("reorder_distance", self.reorder_distance, "it must be at least 1")
        if self.rate_gbps is not None and not self.rate_gbps > 0:
            raise BadSetting("rate_gbps", self.rate_gbps, "it must be above 0")


@dataclass
class LinkCounters:
    """Frames by what happened to them, each a ``Counter`` by :class:`FrameKind`.

    ``delivered`` includes copies. ``destroyed`` are those of which no usable copy arrived: lost, or damaged in the
    only one.
    """

    sent: Counter = field(default_factory=Counter)
    lost: Counter = field(default_factory=Counter)
    duplicated: Counter = field(default_factory=Counter)
    reordered: Counter = field(default_factory=Counter)
    corrupted: Counter = field(default_factory=Counter)
    delivered: Counter = field(default_factory=Counter)
    destroyed: Counter = field(default_factory=Counter)

    @property
    def destroyed_data(self):
        """Data packets, retransmissions included, of which no usable copy arrived."""
        return self.destroyed[FrameKind.DATA] + self.destroyed[FrameKind.RETX]

    def as_dict(self):
        """Plain numbers for a report: ``{"sent": {"data": 10, "all": 10}, ...}``."""
        return {name: {**{str(kind): n for kind, n in sorted(counter.items())}, "all": counter.total()}
                for name, counter in vars(self).items()}


class _Held:
    """A frame that ``left`` later frames may still overtake; ``frame`` is None once it was delivered."""

    __slots__ = ("frame", "left")

    def __init__(self, frame, left):
        self.frame, self.left = frame, left


class Impairments:
    """Decides the fate of each frame.

    Each chance draws from its own random sequence, once per frame: raising one leaves the decisions of the others
    as they were for the same seed.

    Parameters
    ----------
    config : LinkConfig
        May be replaced at any time through the attribute of the same name.
    seed : int or str
        Of every random decision.

    Attributes
    ----------
    counters : LinkCounters
    usable : callable(frame)
        True if the receiver still takes a damaged frame: some bits are protected by nothing.
    """

    def __init__(self, config=None, seed=0):
        self.usable = lambda frame: False
        self.counters = LinkCounters()
        self._rng = {name: random.Random(f"{seed}/{name}") for name in (*CHANCES, "hold", "copy", "bit", "model")}
        self._chances = [self._rng[name].random for name in CHANCES]
        self._drop_when, self._held = [], []
        self._busy_until = 0.0     # the slowest stretch
        self._config, self.config = None, config or LinkConfig()

    @property
    def config(self):
        return self._config

    @config.setter
    def config(self, config):
        model = config.loss_model
        if self._config is None or model is not self._config.loss_model:
            self._loses = model.start(self._rng["model"]) if model else None
        self._config = config

    def seed(self, seed):
        """Decide with the random sequences of another seed from now on."""
        for name, rng in self._rng.items():
            rng.seed(f"{seed}/{name}")

    def drop_when(self, predicate):
        """Drop each frame for which ``predicate(frame_bytes, kind)`` is true; returns a function that ends it."""
        self._drop_when.append(predicate)
        return lambda: self._drop_when.remove(predicate)

    def fate(self, frame, time_ns):
        """Decide when a frame sent at ``time_ns`` arrives: ``[(time_ns, arriving), ...]``, empty when lost.

        ``arriving`` is bytes, or what :meth:`released` makes bytes when its time comes. Frames that were held back
        and that enough others have overtaken now are in the list as well.
        """
        config, kind, count, rng = self._config, frame_kind(frame), self.counters, self._rng
        # All draws first: what happens to this frame does not shift the draws of the next.
        loss, duplicate, reorder, corrupt = [draw() for draw in self._chances]
        distance = config.reorder_distance
        hold = rng["hold"].randint(1, distance or config.reorder_max_ns) if config.reorder else 0
        copy = rng["copy"].randint(1, config.reorder_max_ns) if config.duplicate and not distance else 0
        bit = rng["bit"].randrange(len(frame) * 8) if config.corrupt else 0

        count.sent[kind] += 1
        alike = config.control_loss is None or kind not in CONTROL_KINDS
        gone = loss < (config.loss if alike else config.control_loss)
        if alike and self._loses and self._loses(time_ns):
            gone = True
        if self._drop_when:
            frame = bytes(frame)
            for predicate in self._drop_when:       # each is called: it may count
                gone |= bool(predicate(frame, kind))
        if gone:
            count.lost[kind] += 1
            count.destroyed[kind] += 1
            return self._overtaken(time_ns) if self._held else []
        arrival, arriving = self._through(frame, time_ns) + config.delay_ns, frame
        doubled = duplicate < config.duplicate
        if alike and corrupt < config.corrupt:
            count.corrupted[kind] += 1
            damaged = bytearray(bytes(frame))
            damaged[bit // 8] ^= 1 << bit % 8
            arriving = bytes(damaged)
            count.destroyed[kind] += not doubled and not self.usable(arriving)
        overtaken = self._overtaken(time_ns) if self._held else []
        deliveries = [(arrival, arriving)]
        if reorder < config.reorder:
            count.reordered[kind] += 1
            if distance:
                self._held.append(_Held(arriving, hold))
                deliveries = [(arrival + config.reorder_max_ns, self._held[-1])]
            else:
                arrival += hold
                deliveries = [(arrival, arriving)]
        if doubled:
            count.duplicated[kind] += 1
            deliveries.append((arrival + copy, frame))
        count.delivered[kind] += len(deliveries)
        return deliveries + overtaken if overtaken else deliveries

    @staticmethod
    def released(arriving):
        """Return the frame of a delivery whose time has come, or None if it was delivered before."""
        if isinstance(arriving, _Held):
            arriving.left, frame, arriving.frame = 0, arriving.frame, None
            return frame
        return arriving

    def _overtaken(self, time_ns):
        """Deliveries of the frames that were held back until one more was sent."""
        for held in self._held:
            held.left -= 1
        over = [held for held in self._held if held.left <= 0]
        self._held = [held for held in self._held if held.left > 0]
        return [(time_ns + self._config.delay_ns, self.released(held)) for held in over if held.frame is not None]

    def _through(self, frame, time_ns):
        """Time at which a frame has passed the slowest stretch."""
        if self._config.rate_gbps is None:
            return time_ns
        wire_bytes = max(len(frame), wire.MIN_FRAME_BYTES) + WIRE_OVERHEAD_BYTES
        self._busy_until = max(self._busy_until, time_ns) + wire_bytes * 8 / self._config.rate_gbps
        return self._busy_until
