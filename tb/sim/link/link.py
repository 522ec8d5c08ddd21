"""One direction of an Ethernet link that delays, loses, doubles, reorders and damages frames.

:class:`Impairments` decides, from a frame and the time it was sent, when which bytes arrive: plain logic, without a
simulator. :class:`LinkDirection` carries its decisions out inside a simulation, waking for frames only.
"""

import enum
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

from weft.hdl.contract import wire
from weft.model.settings import BadSetting, Setting, chance, check

REORDER_MAX_NS, DELAY_MAX_NS = 1000, 1 << 62
WIRE_OVERHEAD_BYTES = 24    # FCS, preamble, gap


class FrameKind(enum.StrEnum):
    """What a frame is for, as far as the link's counters care."""

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


def frame_kind(frame):
    """The :class:`FrameKind` of an Ethernet frame."""
    if len(frame) < wire.BTH_OFFSET + wire.BTH.size_bytes:
        return FrameKind.OTHER
    if wire.ETH.unpack(frame).ethertype != wire.ETHERTYPE_IPV4:
        return FrameKind.OTHER
    ip = wire.IPV4.unpack(frame[wire.ETH.size_bytes:])
    udp = wire.UDP.unpack(frame[wire.ETH.size_bytes + wire.IPV4.size_bytes:])
    if ip.ihl != 5 or ip.protocol != wire.IP_PROTO_UDP or udp.dport != wire.ROCE_UDP_PORT:
        return FrameKind.OTHER
    return _KIND.get(frame[wire.BTH_OFFSET], FrameKind.OTHER)


@dataclass(frozen=True)
class LinkConfig:
    """How bad one direction is. All chances are per frame and independent.

    A duplicated frame arrives a second time, up to ``reorder_max_ns`` later; a reordered one is held back by 1 ns to
    ``reorder_max_ns``; a corrupted one has one bit flipped, anywhere in the frame.

    Attributes
    ----------
    rate_gbps : float or None
        Of the slowest stretch of the path: frames queue for it. None: none is slower than the MACs, which serialise
        at line rate themselves.

    Raises
    ------
    BadSetting
    """

    delay_ns: Annotated[float, Setting("Delay one way, half of the round trip time.", unit="nanoseconds", least=0,
                                       most=DELAY_MAX_NS)] = 10_000
    rate_gbps: float | None = None
    loss: Annotated[float, chance("Chance of a loss.")] = 0.0
    duplicate: Annotated[float, chance("Chance of a second copy.")] = 0.0
    reorder: Annotated[float, chance("Chance of a delay behind later frames.")] = 0.0
    corrupt: Annotated[float, chance("Chance of a flipped bit.")] = 0.0
    reorder_max_ns: Annotated[int, Setting("Longest time for which a frame is held back.", unit="nanoseconds", least=1,
                                           most=DELAY_MAX_NS)] = REORDER_MAX_NS
    lose_control: Annotated[bool, Setting("Frames other than data and retransmissions can be lost or corrupted as "
                                          "well.")] = True

    def __post_init__(self):
        check(self)
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

    def as_dict(self):
        """Plain numbers for a report: ``{"sent": {"data": 10, "all": 10}, ...}``."""
        return {name: {**{str(kind): n for kind, n in sorted(counter.items())}, "all": counter.total()}
                for name, counter in vars(self).items()}


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
    usable : callable
        Tells of a damaged frame whether its receiver would still take it: some bits are protected by nothing.
    """

    def __init__(self, config=None, seed=0):
        self.config = config or LinkConfig()
        self.usable = lambda frame: False
        self.counters = LinkCounters()
        self._rng = {name: random.Random(f"{seed}/{name}") for name in
                     ("loss", "duplicate", "reorder", "corrupt", "hold", "copy", "bit")}
        self._drop_when = []
        self._busy_until = 0.0     # the slowest stretch

    def draw_anew(self, seed):
        """Decide with the random sequences of another seed from now on."""
        for name, rng in self._rng.items():
            rng.seed(f"{seed}/{name}")

    def drop_when(self, predicate):
        """Drop each frame for which ``predicate(frame_bytes, kind)`` is true; returns a function that ends it."""
        self._drop_when.append(predicate)
        return lambda: self._drop_when.remove(predicate)

    def fate(self, frame, time_ns):
        """What becomes of a frame sent at ``time_ns``: ``[(deliver_time_ns, bytes), ...]``, empty when lost."""
        config, kind, count = self.config, frame_kind(frame), self.counters
        # All draws first: what happens to this frame does not shift the draws of the next.
        chance = {name: self._rng[name].random() for name in ("loss", "duplicate", "reorder", "corrupt")}
        hold = self._rng["hold"].randint(1, config.reorder_max_ns)
        copy = self._rng["copy"].randint(1, config.reorder_max_ns)
        bit = self._rng["bit"].randrange(len(frame) * 8)

        count.sent[kind] += 1
        vulnerable = config.lose_control or kind not in CONTROL_KINDS
        unwanted = [predicate(frame, kind) for predicate in self._drop_when]  # all are asked: they may count
        if any(unwanted) or (vulnerable and chance["loss"] < config.loss):
            count.lost[kind] += 1
            count.destroyed[kind] += 1
            return []
        arrival = self._through(frame, time_ns) + config.delay_ns
        if chance["reorder"] < config.reorder:
            count.reordered[kind] += 1
            arrival += hold
        deliveries = [(arrival, frame)]
        if chance["duplicate"] < config.duplicate:
            count.duplicated[kind] += 1
            deliveries.append((arrival + copy, frame))
        if vulnerable and chance["corrupt"] < config.corrupt:
            count.corrupted[kind] += 1
            damaged = bytearray(frame)
            damaged[bit // 8] ^= 1 << bit % 8
            deliveries[0] = (arrival, bytes(damaged))
            count.destroyed[kind] += len(deliveries) == 1 and not self.usable(bytes(damaged))
        count.delivered[kind] += len(deliveries)
        return deliveries

    def _through(self, frame, time_ns):
        """When a frame has passed the slowest stretch."""
        if self.config.rate_gbps is None:
            return time_ns
        wire_bytes = max(len(frame), wire.MIN_FRAME_BYTES) + WIRE_OVERHEAD_BYTES
        self._busy_until = max(self._busy_until, time_ns) + wire_bytes * 8 / self.config.rate_gbps
        return self._busy_until


class LinkDirection:
    """Runs :class:`Impairments` inside a simulation.

    Parameters
    ----------
    impairments : Impairments
        Decides.
    deliver : callable
        Called with the bytes of each frame that arrives, at the time it arrives.
    sent_tap, arrived_tap : callable, optional
        Called with ``(time_ns, frame)``, for instance :meth:`weft.tb.sim.link.pcap.PcapWriter.write`: with what the
        sender sent, and with what arrived.

    Attributes
    ----------
    in_flight : int
        Frames under way.
    arrival_watchers : list of callable(frame)
        Told of each frame that arrives, before it is delivered.
    deliver : callable
        As given; may be replaced at any time.
    """

    def __init__(self, impairments, deliver, sent_tap=None, arrived_tap=None):
        self.impairments, self.in_flight, self.arrival_watchers = impairments, 0, []
        self.deliver, self._sent_tap, self._arrived_tap = deliver, sent_tap, arrived_tap

    @property
    def counters(self):
        return self.impairments.counters

    def send(self, frame):
        """Accept a frame now."""
        import cocotb
        from cocotb.utils import get_sim_time

        now = get_sim_time("ns")
        if self._sent_tap:
            self._sent_tap(now, frame)
        for at, arriving in self.impairments.fate(frame, now):
            self.in_flight += 1
            cocotb.start_soon(self._carry(at, at - now, arriving))

    async def _carry(self, at, delay_ns, frame):
        from cocotb.triggers import Timer

        if delay_ns > 0:
            await Timer(round(delay_ns * 1000), "ps")
        self.in_flight -= 1
        if self._arrived_tap:
            self._arrived_tap(at, frame)
        for watcher in self.arrival_watchers:
            watcher(frame)
        self.deliver(frame)
