"""PCIe and host memory of the timing model: completions of reads in any order, writes in order."""

import random
from collections import deque

from weft.hdl.contract.abi import BLOCK_BYTES, HOST_TO_CARD

from .timing import BEAT_BYTES, CYCLE_NS, HostTiming, edge
from .write_engine import WriteEngine

COMPLETION_LINES, COMPLETION_HEADERS = 384, 128     # completion buffer: see hdl/pcie/completion_credit.py
UNIT_LINES = (1, 2, 4)      # units at which a host may split completions, in lines of 64 bytes
LONG_BEATS = (0, 3, 4)      # by unit: a completion of at least this many beats was not split at a smaller unit
TRUST = 64                  # long completions after which a unit counts as the host's
WEIGHED = 2 * CYCLE_NS      # between reads; also after the last but one on RQ, since two may wait there
LINE_COMMAND, LINE_ADAMAP, LINE_CLIENTS = range(len(HOST_TO_CARD), len(HOST_TO_CARD) + 3)   # after the rings
SOURCES = 3         # of reads, in round robin: lines, payload, raw frames
COMPLETION_BYTES = 12       # header of a completion on RC


class Read:
    """Read request.

    Attributes
    ----------
    bytes : int
        In whole double words.
    needed : tuple of int
        Largest number of its completions, by unit.
    answered : callable(time_ns)
        Called ahead of time with the time at which its last completion reaches the card.
    """

    __slots__ = ("answered", "bytes", "needed")

    def __init__(self, address, length, answered):
        self.bytes, self.answered = -(-(address % 4 + length) // 4) * 4, answered     # whole dwords
        self.needed = (-(-(address % 64 + length) // 64), -(-(address % 128 + length) // 128),
                       -(-(address % 256 + length) // 256))     # by UNIT_LINES


class Pcie:
    """PCIe interface of the card, the link, and the host's memory.

    Parameters
    ----------
    loop : EventLoop
    timing : Timing
    host : HostTiming
    seed : hashable
        Seed of the host's latencies.

    Attributes
    ----------
    writes : WriteEngine
    used : list of int
        Largest number of completions of the outstanding reads, by unit.
    next_read, take_read : callable(source)
        Of a source of payload reads: return the time of its next read, or None; remove and return that read.
    """

    def __init__(self, loop, timing, host=None, seed=0):
        self.loop, self.timing, self.host = loop, timing, host or HostTiming()
        self.random = random.Random(f"pcie {seed}")
        self.used, self.trusted, self._runs = [0] * len(UNIT_LINES), 1, [0] * len(UNIT_LINES)
        self._lines = deque()       # (time, client, read), in the order of their requests
        self._client = 0            # client of the newest read of lines
        self._held = self._next_turn = None     # the read that waits for its time or for buffer space; the next turn
        self._source = 0            # source of the newest read
        self._freed = deque()       # (time, buffer space freed then, long completions by unit)
        self._request_free = self._completion_free = 0.0
        # Link to the card: end of all scheduled transfers, end of the transfers that have begun, and the delay of the
        # scheduled ones by others that came in between.
        self._down_reserved = self._down_free = self._down_late = 0.0
        self.writes = WriteEngine(loop, timing, self.host)
        self._pace = CYCLE_NS / (1 - self.host.stall)     # of a beat
        self.next_read, self.take_read = lambda source: None, None

    # ------------------------------------------------------------------------------------------------- reads

    def line(self, time_ns, client, read):
        """Request a read of lines, not before a time; clients with requests at the same time take turns."""
        lines, at = self._lines, len(self._lines)
        while at and lines[at - 1][0] > time_ns:
            at -= 1
        lines.insert(at, (time_ns, client, read))
        self.wanted(time_ns)

    def _take_line(self):
        lines = self._lines
        first, (time, client, _) = 0, lines[0]
        for at in range(1, len(lines)):
            if lines[at][0] > time:
                break
            if self._after(lines[at][1]) < self._after(client):
                first, client = at, lines[at][1]
        self._client, read = client, lines[first][2]
        del lines[first]
        return read

    def _after(self, client):
        return (client - self._client - 1) % LINE_CLIENTS

    def wanted(self, time_ns):
        """Announce that a source will have a read at a time."""
        if self._held is None:
            self._turn_at(max(time_ns, self._request_free))

    def _turn_at(self, time_ns):
        at = edge(max(time_ns, self.loop.now_ns))
        if self._next_turn is None or at < self._next_turn:
            self._next_turn = at
            self.loop.call_at(at, self._turn, at)

    def _turn(self, at):
        """Take a read, or send it if the completion buffer has space for it and take the next one."""
        if at != self._next_turn:
            return
        self._next_turn = None
        if self._held is None and not self._take(at):
            return
        if at < self._request_free:
            self._turn_at(self._request_free)
        elif self._space(self._held, at):
            read, self._held = self._held, None
            before = self.writes.read_out
            self.writes.let_pass(max(at, before + self._pace))
            self._request_free = max(at, before) + WEIGHED
            self._ask(read)
            self._take(self._request_free)
        elif self._freed:
            self._turn_at(self._freed[0][0])

    def _take(self, until):
        """Take a read that is ready by a time, in round robin; return false if none is, and schedule another turn."""
        first = None
        for step in range(1, SOURCES + 1):
            source = (self._source + step) % SOURCES
            at = self._lines[0][0] if source == 0 and self._lines else self.next_read(source) if source else None
            if at is None:
                continue
            if at <= until:
                self._source = source
                self._held = self._take_line() if source == 0 else self.take_read(source)
                self._turn_at(until)
                return True
            first = at if first is None else min(first, at)
        if first is not None:
            self._turn_at(first)
        return False

    def _space(self, read, at):
        """Return whether the completion buffer has space for the completions of a read."""
        used, freed = self.used, self._freed
        while freed and freed[0][0] <= at:
            _, (first, second, third), long = freed.popleft()
            self._learn(long)
            used[0] -= first
            used[1] -= second
            used[2] -= third
        needed, unit = read.needed, self.trusted - 1
        return used[0] + needed[0] <= COMPLETION_LINES and used[unit] + needed[unit] <= COMPLETION_HEADERS

    def _ask(self, read):
        host = self.host
        used, (first, second, third) = self.used, read.needed
        used[0] += first
        used[1] += second
        used[2] += third
        wait = host.read_latency_ns * (1 + host.read_jitter * self.random.uniform(-1, 1))
        if host.read_tail and self.random.random() < host.read_tail:
            wait += host.read_tail_ns
        self.loop.call_at(self.writes.read_left + self.timing.pcie_hop + wait, self._answer, read)

    def _answer(self, read):
        """Schedule the completions of a read on the link, after the latency of the host's memory."""
        begin = max(self.loop.now_ns, self._down_reserved)
        self._down_reserved = begin + self._crossing(read)
        if begin > self.loop.now_ns:
            self.loop.call_at(begin, self._complete, read)
        else:
            self._complete(read)

    @property
    def _step(self):
        return BLOCK_BYTES if self.host.split_completions else self.host.max_payload_bytes

    def _crossing(self, read):
        """Return the time that the completions of a read take on the link."""
        timing = self.timing
        return (read.bytes + -(-read.bytes // self._step) * timing.completion_header_bytes) / timing.pcie_bytes_per_ns

    def _complete(self, read):
        """Send completions across the link and the card's stream."""
        timing, step, now = self.timing, self._step, self.loop.now_ns
        left, done, long = read.bytes, 0.0, [0] * len(UNIT_LINES)
        while left:
            piece = min(left, step)
            left -= piece
            begin = self.writes.acknowledge(self._down_free)
            self._down_free = begin + (piece + timing.completion_header_bytes) / timing.pcie_bytes_per_ns
            start = max(edge(self._down_free + timing.pcie_hop), self._completion_free)
            beats = -(-(COMPLETION_BYTES + piece) // BEAT_BYTES)
            done = self._completion_free = start + beats * self._pace
            for unit in range(1, len(UNIT_LINES)):
                long[unit] += beats >= LONG_BEATS[unit]
        self._down_late = max(0.0, self._down_free - now - self._crossing(read))
        self._freed.append((edge(done + timing.space), read.needed, long))
        if self._held is not None and len(self._freed) == 1:
            self._turn_at(max(self._freed[0][0], self._request_free))
        read.answered(done)

    def down(self, size):
        """Send ``size`` bytes from the host to the card after earlier transfers; return when they begin on the link."""
        now = self.loop.now_ns
        begin = max(now, self._down_reserved + self._down_late)
        if begin == now:
            begin = self.writes.acknowledge(self._down_free)
            self._down_free = begin + size / self.timing.pcie_bytes_per_ns
        self._down_reserved = begin + size / self.timing.pcie_bytes_per_ns
        return begin

    def _learn(self, long):
        """Learn the host's unit of split completions, which limits the outstanding reads, from received completions."""
        for unit in range(1, len(UNIT_LINES)):
            self._runs[unit] = min(TRUST, self._runs[unit] + long[unit])
        while self.trusted < len(UNIT_LINES) and self._runs[self.trusted] == TRUST:
            self.trusted += 1
