"""One direction of a link for frames, and the queues of the port that sends on it."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from ...impairments import FrameKind
from ...loss import GilbertElliott, Loses
from ..description import FabricLink
from ..forwarding import pauses

QUEUES = CONTROL, DATA = "control", "data"


@dataclass(slots=True, eq=False)
class Packet:
    """Frame inside a fabric.

    Attributes
    ----------
    frame
        Its bytes; None for background traffic.
    size
        Bytes on the wire.
    to
        Numbers of the hosts that it is for.
    trail
        Numbers of the nodes that it has left.
    came
        Port through which it reached the switch where it is; None at its host.
    """

    frame: bytes | None
    size: int
    control: bool
    kind: FrameKind
    hash: int
    to: tuple[int, ...]
    trail: tuple[int, ...] = ()
    came: "FramePort | None" = None

    @property
    def queue(self) -> str:
        """Queue of its class."""
        return CONTROL if self.control else DATA

    def copy(self, to: tuple[int, ...]) -> "Packet":
        """Return a copy for some of the hosts."""
        return Packet(self.frame, self.size, self.control, self.kind, self.hash, to, self.trail, self.came)


@dataclass
class PortCounters:
    """Counts of packets of a port. ``queued`` and ``peak_bytes`` are by queue; the peak is that of waiting bytes.

    Attributes
    ----------
    sent, sent_bytes
        Transmissions, with those that the link loses.
    marked, unmarkable
        Packets marked, and packets that would have been if their ECN field permitted it.
    dropped
        By queue: no space in the shared buffer.
    trimmed
        No space, and headers sent on.
    lost, cut
        Lost by chance, and with a link that went down.
    pauses
        Pauses of data, by the switch at the other end.
    """

    sent: int = 0
    sent_bytes: int = 0
    queued: Counter[str] = field(default_factory=Counter)
    peak_bytes: Counter[str] = field(default_factory=Counter)
    marked: int = 0
    unmarkable: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    trimmed: int = 0
    lost: int = 0
    cut: int = 0
    pauses: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the counts, with those of both queues by name."""
        return {name: {queue: value[queue] for queue in QUEUES} if isinstance(value, Counter) else value
                for name, value in vars(self).items()}


class FramePort:
    """Port of a node, and the direction of its link away from it; a direction that is down has lost all its frames.

    Attributes
    ----------
    node, peer
        Numbers of the nodes at its ends.
    rate
        In bytes in a nanosecond.
    epoch
        Number of cuts; a frame of an earlier epoch is lost.
    free_at
        End of the last transmission of a host's port.
    paused
        The switch at the other end accepts no data now.
    """

    def __init__(self, node: int, peer: int, link: FabricLink) -> None:
        self.node, self.peer = node, peer
        self.rate, self.delay, self._jitter = link.rate_gbps / 8, link.delay_us * 1e3, link.jitter_us * 1e3
        self._loss, self._bursts = link.loss, GilbertElliott(link.burst, link.burst_loss) if link.burst_loss else None
        self.counters = PortCounters()
        self.waiting: dict[str, deque[Packet]] = {queue: deque() for queue in QUEUES}
        self.bytes = dict.fromkeys(QUEUES, 0)
        self.up, self.busy, self.epoch, self.free_at = True, False, 0, 0.0
        self.paused = self._pausing = self._pause_due = False
        self._held = 0          # bytes of data in the buffer of the switch at the other end
        self._last_arrival = 0.0
        self._loses: Loses | None = None

    def seed(self, seed: str) -> None:
        """Begin the random sequences of the link."""
        self._losses, self._delays = random.Random(f"{seed}/loss"), random.Random(f"{seed}/jitter")
        self._loses = self._bursts.start(random.Random(f"{seed}/bursts")) if self._bursts else None

    def push(self, packet: Packet) -> None:
        """Append a packet to its queue."""
        queue, count = packet.queue, self.counters
        self.waiting[queue].append(packet)
        self.bytes[queue] += packet.size
        count.queued[queue] += 1
        count.peak_bytes[queue] = max(count.peak_bytes[queue], self.bytes[queue])

    def pop(self) -> Packet | None:
        """Remove and return the next packet: control frames first, and no data during a pause."""
        for queue in QUEUES[:1] if self.paused else QUEUES:
            if self.waiting[queue]:
                packet = self.waiting[queue].popleft()
                self.bytes[queue] -= packet.size
                return packet
        return None

    def hold(self, size: int, limits: tuple[int, int]) -> bool:
        """Count data that enters the buffer at the other end, or with a negative size leaves it.

        ``limits`` are the ``pause_bytes`` of the switch there. Return whether it signals a change; one that follows
        before :meth:`obey` takes effect with it.
        """
        self._held += size
        pausing = pauses(self._held, self._pausing, *limits)
        signals = pausing != self._pausing and not self._pause_due
        self._pausing, self._pause_due = pausing, self._pause_due or signals
        return signals

    def obey(self) -> None:
        """Apply the newest signal."""
        self._pause_due = False
        self.counters.pauses += self._pausing and not self.paused
        self.paused = self._pausing

    def lost(self, now: float) -> bool:
        """Advance the loss patterns by a frame and return whether it is lost."""
        gone = self._loss > 0 and self._losses.random() < self._loss
        return bool(self._loses and self._loses(now)) or gone

    def arrival(self, now: float) -> float:
        """Return the time at which a frame arrives whose transmission ends now."""
        at = now + self.delay
        if self._jitter:
            self._last_arrival = at = max(self._last_arrival, at + self._delays.uniform(0, self._jitter))
        return at

    def take_down(self) -> list[Packet]:
        """Take the direction down; return the packets that waited for it."""
        self.up, self.epoch = False, self.epoch + 1
        gone = [packet for queue in QUEUES for packet in self.waiting[queue]]
        for queue in QUEUES:
            self.waiting[queue].clear()
            self.bytes[queue] = 0
        return gone
