"""Impairments of one direction of an Ethernet link: delay, loss, duplicates, reordering and damage, by seed.

:class:`Impairments` decides from a frame and its time of transmission which bytes arrive, and when. A link carries the
decisions out: :class:`weft.model.link.Link`.
"""

import enum
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from weft.hdl.contract import wire

from .faults import CORRUPT, DELAY, DROP, DUPLICATE, ActiveRule
from .loss import Loses, LossModel
from .settings import BadSetting, Setting, chance, check

REORDER_MAX_NS, DELAY_MAX_NS = 1000, 1 << 62
CHANCES = ("loss", "duplicate", "reorder", "corrupt")


class FrameKind(enum.StrEnum):
    """Purpose of a frame, as the counters of a link distinguish it."""

    DATA = "data"
    RETX = "retx"
    LOSS_REPORT = "loss_report"
    ACK = "ack"
    PROBE = "probe"
    OTHER = "other"


_KIND: dict[int, FrameKind] = {
    **dict.fromkeys(wire.DATA_OPCODES, FrameKind.DATA),
    **dict.fromkeys(wire.RETX_OPCODES, FrameKind.RETX),
    wire.Opcode.LOSS_REPORT: FrameKind.LOSS_REPORT,
    wire.Opcode.ACKNOWLEDGE: FrameKind.ACK,
    wire.Opcode.PROBE: FrameKind.PROBE,
}
_OTHER = FrameKind.OTHER
CONTROL_KINDS = frozenset(FrameKind) - {FrameKind.DATA, FrameKind.RETX}
_OCTETS = (bytes, bytearray)
_BTH_END = wire.BTH_OFFSET + wire.BTH.size_bytes
_IPV4, _ROCE_PORT = wire.ETHERTYPE_IPV4.to_bytes(2, "big"), wire.ROCE_UDP_PORT.to_bytes(2, "big")


class LazyFrame(Protocol):
    """Frame of an RDMA packet that converts to bytes."""

    opcode: int

    @property
    def addresses(self) -> bytes: ...

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes: ...


Frame = bytes | bytearray | LazyFrame


def opcode_of(frame: Frame) -> int:
    """Return the BTH opcode of an Ethernet frame, or -1 if it has no BTH."""
    return _opcode_in(frame) if isinstance(frame, _OCTETS) else frame.opcode


def _opcode_in(frame: bytes | bytearray) -> int:
    if (len(frame) < _BTH_END or frame[12:14] != _IPV4 or frame[14] & 15 != 5
            or frame[23] != wire.IP_PROTO_UDP or frame[36:38] != _ROCE_PORT):
        return -1
    return frame[wire.BTH_OFFSET]


def addresses_of(frame: Frame) -> bytes:
    """Return the destination and the source of an Ethernet frame."""
    return bytes(frame[:12]) if isinstance(frame, _OCTETS) else frame.addresses


def frame_kind(frame: Frame) -> FrameKind:
    """Return the kind of an Ethernet frame."""
    return _KIND.get(_opcode_in(frame) if isinstance(frame, _OCTETS) else frame.opcode, _OTHER)


@dataclass(frozen=True)
class LinkConfig:
    """Impairments of one direction. All chances are per frame and independent.

    Attributes
    ----------
    delay_ns
        Delay one way, half of the round trip time.
    rate_gbps
        Rate of the bottleneck of the path, where frames queue. None: no part of the path is slower than the sender.
    loss, duplicate, reorder, corrupt
        Chances, 0 to 1. A duplicated frame arrives a second time, up to ``reorder_max_ns`` later; a reordered one is
        held back by 1 ns to ``reorder_max_ns``; a corrupted one has one bit flipped, anywhere in the frame, and does
        not arrive if it is not a packet of a card: such frames have no ICRC, and the FCS reveals the damage.
    reorder_max_ns
        Longest time for which a frame is held back.
    reorder_distance
        Bound in frames, so that the card's reorder registers can cover it exactly: a reordered frame arrives after 1 to
        ``reorder_distance`` frames sent after it, or after ``reorder_max_ns`` if fewer frames follow; a duplicate
        follows at once. None: the bound is in time only.
    control_loss
        Chance of loss of frames that carry no RDMA data; such frames are then not corrupted either. None: they are
        treated like all others.
    loss_model
        Loses frames in addition to ``loss``; frames without RDMA data only if ``control_loss`` is None.
    jitter_ns
        Largest additional delay, which varies evenly from frame to frame; frames keep their order.

    Raises
    ------
    BadSetting
    """

    delay_ns: Annotated[float, Setting("Delay one way, half of the round trip time.", unit="nanoseconds", least=0,
                                       most=DELAY_MAX_NS)] = 5_000
    rate_gbps: float | None = None
    loss: Annotated[float, chance("Chance of a loss.")] = 0.0
    duplicate: Annotated[float, chance("Chance of a second copy.")] = 0.0
    reorder: Annotated[float, chance("Chance that later frames overtake a frame.")] = 0.0
    corrupt: Annotated[float, chance("Chance of a flipped bit.")] = 0.0
    reorder_max_ns: Annotated[int, Setting("Longest time for which a frame is held back.", unit="nanoseconds", least=1,
                                           most=DELAY_MAX_NS)] = REORDER_MAX_NS
    reorder_distance: int | None = None
    control_loss: float | None = None
    loss_model: LossModel | None = None
    jitter_ns: Annotated[float, Setting("Jitter.", unit="nanoseconds", least=0, most=DELAY_MAX_NS)] = 0.0

    def __post_init__(self) -> None:
        check(self)
        if self.control_loss is not None and not 0 <= self.control_loss <= 1:
            raise BadSetting("control_loss", self.control_loss, "it must lie between 0 and 1")
        if self.reorder_distance is not None and self.reorder_distance < 1:
            raise BadSetting("reorder_distance", self.reorder_distance, "it must be at least 1")
        if self.rate_gbps is not None and not self.rate_gbps > 0:
            raise BadSetting("rate_gbps", self.rate_gbps, "it must be above 0")


@dataclass
class LinkCounters:
    """Frames by outcome, each a ``Counter`` by :class:`FrameKind`.

    ``delivered`` includes copies. ``destroyed`` counts the frames of which no usable copy arrived: lost, or damaged
    without a second copy.
    """

    sent: Counter[FrameKind] = field(default_factory=Counter)
    lost: Counter[FrameKind] = field(default_factory=Counter)
    duplicated: Counter[FrameKind] = field(default_factory=Counter)
    reordered: Counter[FrameKind] = field(default_factory=Counter)
    corrupted: Counter[FrameKind] = field(default_factory=Counter)
    delivered: Counter[FrameKind] = field(default_factory=Counter)
    destroyed: Counter[FrameKind] = field(default_factory=Counter)

    @property
    def destroyed_data(self) -> int:
        """Number of data packets, retransmissions included, of which no usable copy arrived."""
        return self.destroyed[FrameKind.DATA] + self.destroyed[FrameKind.RETX]

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Return plain numbers for a report: ``{"sent": {"data": 10, "all": 10}, ...}``."""
        return {name: {**{str(kind): n for kind, n in sorted(counter.items())}, "all": counter.total()}
                for name, counter in vars(self).items()}


class _DelayedFrame:
    """Frame that ``left`` later frames may still overtake; ``frame`` is None after its delivery."""

    __slots__ = ("frame", "left")

    def __init__(self, frame: Frame, left: int) -> None:
        self.frame: Frame | None = frame
        self.left = left


Arriving = Frame | _DelayedFrame
Deliveries = list[tuple[float, Arriving]]


class Impairments:
    """Decides the outcome of each frame.

    Each chance has its own random sequence and draws once per frame: a change of one chance does not affect the
    decisions of the others for the same seed.

    Parameters
    ----------
    config
        May be replaced at any time through the attribute of the same name.
    seed
        Seed of all random decisions.

    Attributes
    ----------
    usable : callable(frame)
        True if the receiver still accepts a damaged frame: no checksum covers some of its bits.
    before : callable(time_ns), optional
        Called before each frame; it may replace ``config`` and the list ``rules``.
    """

    def __init__(self, config: LinkConfig | None = None, seed: int | str = 0) -> None:
        self.usable: Callable[[bytes], bool] = lambda frame: False
        self.rules: list[ActiveRule] = []
        self.before: Callable[[float], object] | None = None
        self.counters = LinkCounters()
        names = (*CHANCES, "hold", "copy", "bit", "model", "jitter")
        self._rng = {name: random.Random(f"{seed}/{name}") for name in names}
        self._chances = [self._rng[name].random for name in CHANCES]
        self._drop_when: list[Callable[[bytes, FrameKind], object]] = []
        self._held: list[_DelayedFrame] = []
        self._busy_until = 0.0     # of the bottleneck
        self._arrived = 0.0        # latest arrival of a frame with jitter
        self._loses: Loses | None = None
        self._config = LinkConfig()
        self.config = config or self._config

    @property
    def config(self) -> LinkConfig:
        return self._config

    @config.setter
    def config(self, config: LinkConfig) -> None:
        model = config.loss_model
        if model is not self._config.loss_model:
            self._loses = model.start(self._rng["model"]) if model else None
        self._config = config
        self._delays_only = not any((config.loss, config.control_loss, config.loss_model, config.duplicate,
                                     config.reorder, config.corrupt, config.rate_gbps, config.jitter_ns))

    def seed(self, seed: int | str) -> None:
        """Use the random sequences of another seed from now on."""
        for name, rng in self._rng.items():
            rng.seed(f"{seed}/{name}")

    def drop_when(self, predicate: Callable[[bytes, FrameKind], object]) -> Callable[[], None]:
        """Drop each frame for which ``predicate(frame_bytes, kind)`` is true; return a function that stops this."""
        self._drop_when.append(predicate)
        return lambda: self._drop_when.remove(predicate)

    def outcome(self, frame: Frame, time_ns: float) -> Deliveries:
        """Return the deliveries of a frame sent at ``time_ns``: ``[(time_ns, arriving), ...]``, empty if it is lost.

        :meth:`released` makes a frame of ``arriving`` at the time of delivery. The list also has the frames that were
        held back and that enough others have overtaken now.
        """
        if self.before:
            self.before(time_ns)
        config, kind, count, rng = self._config, frame_kind(frame), self.counters, self._rng
        # All draws come first, so that the outcome of this frame does not shift the draws of the next.
        draw_loss, draw_duplicate, draw_reorder, draw_corrupt = self._chances
        loss, duplicate, reorder, corrupt = draw_loss(), draw_duplicate(), draw_reorder(), draw_corrupt()
        if self._delays_only and not (self.rules or self._drop_when or self._held):
            count.sent[kind] += 1
            count.delivered[kind] += 1
            return [(time_ns + config.delay_ns, frame)]
        distance = config.reorder_distance
        hold = rng["hold"].randint(1, distance or config.reorder_max_ns) if config.reorder else 0
        copy = rng["copy"].randint(1, config.reorder_max_ns) if config.duplicate and not distance else 0
        bit = rng["bit"].randrange(len(frame) * 8) if config.corrupt else 0
        jitter = rng["jitter"].uniform(0, config.jitter_ns) if config.jitter_ns else 0.0
        faults: dict[str, ActiveRule] = {}
        if self.rules:
            frame, opcode = bytes(frame), opcode_of(frame)
            faults = {fault: rule for rule in self.rules if (fault := rule.fault(frame, opcode, time_ns))}

        count.sent[kind] += 1
        control_loss = config.control_loss if kind in CONTROL_KINDS else None
        alike = control_loss is None
        gone = DROP in faults or loss < (config.loss if control_loss is None else control_loss)
        if alike and self._loses and self._loses(time_ns):
            gone = True
        if self._drop_when:
            frame = bytes(frame)
            for predicate in self._drop_when:       # call every one: a predicate may count frames
                gone |= bool(predicate(frame, kind))
        damaged = CORRUPT in faults or alike and corrupt < config.corrupt
        if damaged and not gone:
            count.corrupted[kind] += 1
            gone = opcode_of(frame) not in wire.EXTENSIONS
        if gone:
            count.lost[kind] += 1
            count.destroyed[kind] += 1
            return self._overtaken(time_ns) if self._held else []
        arrival, arriving = self._through(frame, time_ns) + config.delay_ns, frame
        if config.jitter_ns:
            self._arrived = arrival = max(self._arrived, arrival + jitter)
        arrival += faults[DELAY].delay_ns if DELAY in faults else 0
        doubled = DUPLICATE in faults or duplicate < config.duplicate
        if damaged:
            bit = faults[CORRUPT].random.randrange(len(frame) * 8) if CORRUPT in faults else bit
            spoilt = bytearray(bytes(frame))
            spoilt[bit // 8] ^= 1 << bit % 8
            arriving = bytes(spoilt)
            count.destroyed[kind] += not doubled and not self.usable(arriving)
        overtaken = self._overtaken(time_ns) if self._held else []
        deliveries: Deliveries = [(arrival, arriving)]
        if reorder < config.reorder:
            count.reordered[kind] += 1
            if distance:
                self._held.append(_DelayedFrame(arriving, hold))
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
    def released(arriving: Arriving) -> Frame | None:
        """Return the frame of a delivery at its time, or None if it was delivered before."""
        if isinstance(arriving, _DelayedFrame):
            arriving.left, frame, arriving.frame = 0, arriving.frame, None
            return frame
        return arriving

    def _overtaken(self, time_ns: float) -> Deliveries:
        """Return the deliveries of frames that were held back until this transmission."""
        for held in self._held:
            held.left -= 1
        over = [held for held in self._held if held.left <= 0]
        self._held = [held for held in self._held if held.left > 0]
        return [(time_ns + self._config.delay_ns, frame) for held in over
                if (frame := self.released(held)) is not None]

    def _through(self, frame: Frame, time_ns: float) -> float:
        """Return the time at which a frame has passed the bottleneck."""
        if self._config.rate_gbps is None:
            return time_ns
        self._busy_until = max(self._busy_until, time_ns) + wire.line_bytes(len(frame)) * 8 / self._config.rate_gbps
        return self._busy_until
