"""PCIe and host memory in time: reads that come back in any order, writes that do not overtake each other."""

import bisect
import random
from collections import deque

from weft.hdl.abi import BLOCK_BYTES

from .timing import BEAT_BYTES, CYCLE_NS, HostTiming, edge

COMPLETION_LINES, COMPLETION_HEADERS = 384, 128     # see hdl/pcie/completion_room.py
UNIT_LINES = (1, 2, 4)
LONG_BEATS = (0, 3, 4)      # a completion of so many beats was not split finer
TRUST = 64
READ_BYTES, COMPLETION_BYTES, WRITE_BYTES = 16, 12, 16      # of the headers on the card's streams
READ_BYTES_ON_LINK = READ_BYTES + 8


class Read:
    """One read request on its way.

    Attributes
    ----------
    bytes : int
    needed : tuple of int
        Completions it may bring, by unit.
    answered : callable(time_ns)
        Told ahead when its last completion will be at the card.
    """

    __slots__ = ("answered", "bytes", "needed")

    def __init__(self, address, length, answered):
        self.bytes, self.answered = length, answered
        self.needed = (-(-(address % 64 + length) // 64), -(-(address % 128 + length) // 128),
                       -(-(address % 256 + length) // 256))     # by UNIT_LINES


class Pcie:
    """The card's end of PCIe, the link, and the host's memory behind it.

    Parameters
    ----------
    loop : EventLoop
    timing : Timing
    host : HostTiming
    seed : hashable
        Of the host's latencies.

    Attributes
    ----------
    used : list of int
        Completions that reads under way may bring, by unit.
    waiting : callable(time_ns)
        Told ahead when there may be room for reads again.
    """

    def __init__(self, loop, timing, host=None, seed=0):
        self.loop, self.timing, self.host = loop, timing, host or HostTiming()
        self.random = random.Random(f"pcie {seed}")
        self.used, self.trusted, self._runs = [0] * len(UNIT_LINES), 1, [0] * len(UNIT_LINES)
        self._later = deque()       # when reads go out that wait for the room of others, as far as it is to come
        self._request_free = self._completion_free = self._up_free = self._down_free = 0.0
        # (from, to, since when its packet has the write engine, until when, when it has left the link) of the writes of
        # payload to come
        self._payload = deque()
        self._link_was = 0.0        # when the newest write that is over had left the link
        self._small_free = self._small_left = self._small_seen = 0.0
        self.written_at = 0.0       # when the newest small write went out of the card
        self._pace = CYCLE_NS / (1 - self.host.stall)     # of a beat
        self.waiting = lambda time_ns: None

    # ------------------------------------------------------------------------------------------------- reads

    def room(self, read):
        """Whether a read may go out: what it may bring has room in the completion buffer."""
        used, needed = self.used, read.needed
        return (used[0] + needed[0] <= COMPLETION_LINES
                and used[self.trusted - 1] + needed[self.trusted - 1] <= COMPLETION_HEADERS)

    def read(self, time_ns, read, waits=False):
        """Ask for a read that there is room for, not before a time; when the request went out.

        ``waits``: until then, its room is another read's.
        """
        at = self._between(max(edge(time_ns), self._request_free))
        self._request_free = at + 2 * self._pace
        if waits:
            self._later.append(at)
        self._ask(at, read)
        return at

    def overtake(self, time_ns, read):
        """Ask for a small read before those that wait for room, but the first of them; whether there were more."""
        later, now = self._later, self.loop.now_ns
        while later and later[0] < now:
            later.popleft()
        turn = bisect.bisect_left(later, time_ns) + 1
        if turn >= len(later):
            return False
        self._ask(later[turn], read)
        return True

    def _ask(self, at, read):
        timing, host = self.timing, self.host
        used, (first, second, third) = self.used, read.needed
        used[0] += first
        used[1] += second
        used[2] += third
        wait = host.read_latency_ns * (1 + host.read_jitter * self.random.uniform(-1, 1))
        if host.read_tail and self.random.random() < host.read_tail:
            wait += host.read_tail_ns
        reaches = max(at + timing.read_request, self._link_free(at) + READ_BYTES_ON_LINK / timing.pcie_bytes_per_ns
                      + timing.pcie_hop)
        ready = reaches + wait
        self.loop.call_at(ready, self._answer, read)

    def _answer(self, read):
        """The host's memory answers a read: its completions cross the link and the card's stream."""
        host, timing = self.host, self.timing
        left, done = read.bytes, 0.0
        step = BLOCK_BYTES if host.split_completions else host.max_payload_bytes
        while left:
            piece = min(left, step)
            left -= piece
            self._down_free = (max(self._down_free, self.loop.now_ns)
                               + (piece + timing.completion_header_bytes) / timing.pcie_bytes_per_ns)
            start = max(edge(self._down_free + timing.pcie_hop), self._completion_free)
            beats = -(-(COMPLETION_BYTES + piece) // BEAT_BYTES)
            done = self._completion_free = start + beats * self._pace
            self._learn(beats)
        used, (first, second, third) = self.used, read.needed
        used[0] -= first
        used[1] -= second
        used[2] -= third
        read.answered(done)
        self.waiting(done)

    def _learn(self, beats):
        """How finely the host splits completions decides how many reads may be under way."""
        if self.trusted < len(UNIT_LINES):
            for unit in range(1, len(UNIT_LINES)):
                if beats >= LONG_BEATS[unit]:
                    self._runs[unit] = min(TRUST, self._runs[unit] + 1)
            if self._runs[self.trusted] == TRUST:
                self.trusted += 1

    # ------------------------------------------------------------------------------------------------ writes

    def write_payload(self, time_ns, length):
        """Write the payload of a packet, not before a time; when the card is through with it."""
        timing, payload = self.timing, self.host.max_payload_bytes
        at = max(edge(time_ns), self._payload[-1][1] if self._payload else 0.0)
        pieces = [min(payload, length - done) for done in range(0, length, payload)]
        beats = [-(-(WRITE_BYTES + piece) // BEAT_BYTES) for piece in pieces]
        packet_end = at + sum(beats) * self._pace
        granted = at - timing.request_ahead
        for piece, count in zip(pieces, beats, strict=True):
            end = at + count * self._pace
            self._up_free = (max(self._up_free, end)
                             + (piece + timing.write_header_bytes) / timing.pcie_bytes_per_ns)
            self._payload.append((at, end, granted, packet_end, self._up_free))
            at = end
        return at

    def write(self, time_ns, length):
        """Write an entry or another small thing, not before a time; when it is in memory.

        It finds its place between the writes of payload, and does not overtake those before it.
        """
        timing = self.timing
        at = self.written_at = max(self._between(edge(time_ns), whole=True), self._small_free)
        end = self._small_free = at + -(-(WRITE_BYTES + length) // BEAT_BYTES) * self._pace
        seen = self._small_left = (max(end, self._link_free(at), self._small_left)
                                   + (length + timing.write_header_bytes) / timing.pcie_bytes_per_ns)
        if not self._payload or at >= self._payload[-1][1]:
            self._up_free = max(self._up_free, seen)
        self._small_seen = max(self._small_seen, seen + timing.pcie_hop)
        return self._small_seen

    def _between(self, at, whole=False):
        """The first time from ``at`` on at which the card's stream is not inside a write of payload, or, of ``whole``
        packets, not inside those of one packet."""
        payload, now = self._payload, self.loop.now_ns
        while payload and payload[0][3] < now:
            self._link_was = payload.popleft()[4]
        free = at
        for start, end, granted, packet_end, _ in payload:
            if whole:
                if granted > at:
                    break
                free = max(free, packet_end)
            elif start > at:
                break
            elif start <= at < end:
                return end
        return free

    def _link_free(self, at):
        """When what went out of the card before a time has left the link."""
        free = self._link_was
        for _, end, _, _, left in self._payload:
            if end > at:
                break
            free = left
        return free
