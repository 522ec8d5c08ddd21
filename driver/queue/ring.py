"""Host side of the rings: 64-byte entries, free-running indices, a phase bit in every entry."""

import collections
import functools

from weft.hdl.contract import abi

PHASE = 1
_CHECK_AT = abi.COMMAND.offset_of("check")     # the same in all entries of these rings
_TO_FOLD = (256, 128, 64, 32, 16)
ENTRIES_MAX = 2     # entries of one descriptor
_PART = object()    # cookie of an entry that is not the last one of its descriptor


def _registers(ring):
    name = ring.name.lower()
    return {part: abi.REGISTER[f"{name}_{part}"].offset for part in ("base", "log2", "prod", "cons")}


@functools.lru_cache(maxsize=32)
def _firsts(count):
    """Return ``count`` entries in which only the first bit is 1."""
    return int.from_bytes((b"\1" + bytes(abi.BLOCK_BYTES - 1)) * count, "little")


def _sealed(entries, phase):
    """Return the entries of one lap with their phase bits and check words.

    All check words are folded at once: only bits that end in an entry's first word matter, and no bit of the next entry
    reaches it.
    """
    firsts = _firsts(len(entries))
    words = int.from_bytes(b"".join(entries), "little") | firsts * phase
    check = words
    for bits in _TO_FOLD:
        check ^= check >> bits
    check &= firsts * 0xFFFF
    return (words | check << _CHECK_AT).to_bytes(len(entries) * abi.BLOCK_BYTES, "little")


class _Ring:
    def __init__(self, device, ring, log2):
        if not 1 <= log2 <= abi.RING_LOG2_MAX:
            raise ValueError(f"a ring of 2^{log2} entries; choose 1 to {abi.RING_LOG2_MAX}")
        self.device, self.ring, self.log2, self.depth, self.laps = device, ring, log2, 1 << log2, 2 << log2
        self.registers = _registers(ring)
        self.buffer = device.alloc(self.depth * abi.BLOCK_BYTES, align=4096)
        self.prod = 0
        self.cons = 0

    def _wrap(self, index):
        """Return an index as the registers contain it: one bit wider than the ring."""
        return index % self.laps

    def _phase(self, index):
        """Return the phase of an entry: 1 in the first lap."""
        return 1 - (index >> self.log2 & 1)

    def enable(self):
        """Program base and size, and start the ring at index 0."""
        self.disable()
        self.device.write64(self.registers["base"], self.buffer.physical(0))
        self.device.write32(self.registers["log2"], self.log2 | 1 << abi.RING_ENABLE_BIT)

    def disable(self):
        self.device.write32(self.registers["log2"], self.log2)

    def clear(self):
        """Clear the ring: the card was reset."""
        self.buffer.write(0, bytes(self.depth * abi.BLOCK_BYTES))
        self.prod = self.cons = 0

    def close(self):
        """Free the memory. Requires that the card does not use the ring any more."""
        self.device.free(self.buffer)


class HostToCardRing(_Ring):
    """Ring that the driver fills.

    :meth:`push` adds descriptors. :meth:`ring_doorbell` stores all of them at once and notifies the card.
    :meth:`advance` returns the cookies of retired descriptors. If ring and device permit it, a single descriptor for a
    card that has no others to read is written to the card itself as well, which then need not read it from memory.
    """

    def __init__(self, device, ring, log2):
        super().__init__(device, ring, log2)
        self._cookies = collections.deque()
        self._pushed = []   # entries since the last doorbell
        self._rung = 0              # index after the newest entry
        self._from_memory = 0       # index after the newest one that the card reads from memory
        self._parts = self._new = 0     # parts; new descriptors
        self._page = None
        if ring in abi.PUSH_RINGS and device.pushes:
            self._page = abi.PUSH_BASE + abi.PUSH_RINGS.index(ring) * abi.PUSH_PAGE_BYTES

    def clear(self):
        super().clear()
        self._cookies.clear()
        self._pushed.clear()
        self._rung = self._from_memory = self._parts = self._new = 0

    @property
    def space(self):
        return self.depth - self.prod + self.cons

    def push(self, entry, cookie=None):
        """Add a descriptor (64 bytes for each entry, phase and check word 0). Return the index of its last entry.

        Raises
        ------
        BufferError
            If the ring has too little space.
        """
        while len(entry) > abi.BLOCK_BYTES:
            if self.space < len(entry) // abi.BLOCK_BYTES:
                raise BufferError(f"{self.ring.name} has {self.space} free slots")
            self._pushed.append(entry[:abi.BLOCK_BYTES])
            self._cookies.append(_PART)
            self._parts += 1
            self.prod += 1
            entry = entry[abi.BLOCK_BYTES:]
        index = self.prod
        if index - self.cons >= self.depth:
            raise BufferError(f"{self.ring.name} is full")
        self._pushed.append(entry)
        self._cookies.append(cookie)
        self._new += 1
        self.prod = index + 1
        return index

    def push_all(self, descriptors, cookies):
        """Add descriptors, with a cookie for each. See :meth:`push`."""
        if max(map(len, descriptors)) > abi.BLOCK_BYTES:
            for descriptor, cookie in zip(descriptors, cookies, strict=True):
                self.push(descriptor, cookie)
            return
        if len(descriptors) > self.space:
            raise BufferError(f"{self.ring.name} has {self.space} free slots")
        self._pushed.extend(descriptors)
        self._cookies.extend(cookies)
        self._new += len(descriptors)
        self.prod += len(descriptors)

    def ring_doorbell(self, pushes=True):
        """Store the pushed descriptors and notify the card of them. Without ``pushes`` it reads them from memory."""
        newest = self.store() if self._pushed else b""
        if self._rung != self.prod:
            first, self._rung = self._rung, self.prod
            whole = len(newest) == (self.prod - first) * abi.BLOCK_BYTES     # no wrap-around at the end of the ring
            # `cons` > 0 shows that the ring is running: the card rejects entries for one that is not.
            if pushes and self._page is not None and self._new == 1 and whole and 0 < self.cons >= self._from_memory:
                for at in range(0, len(newest), abi.BLOCK_BYTES):
                    self._send(first + at // abi.BLOCK_BYTES, newest[at:at + abi.BLOCK_BYTES])
            else:
                self._from_memory = self.prod
                self.device.write32(self.registers["prod"], self._wrap(self.prod))
            self._new = 0

    def _send(self, index, entry):
        """Write an entry to the card itself."""
        self.device.write_block(self._page + self._wrap(index) % abi.PUSH_WINDOWS * abi.BLOCK_BYTES, entry)

    @property
    def unfinished(self):
        """Descriptors that the card has not retired, as of the last :meth:`advance`."""
        return self.prod - self.cons - self._parts

    def store(self):
        """Write the pushed entries to memory, without notifying the card. Return the bytes of the last lap."""
        entries, self._pushed = self._pushed, []
        at = (self.prod - len(entries)) % self.depth
        lap, first = self.depth - at, self.prod - len(entries)
        self.buffer.write(at * abi.BLOCK_BYTES, stored := _sealed(entries[:lap], self._phase(first)))
        if len(entries) > lap:
            self.buffer.write(0, stored := _sealed(entries[lap:], self._phase(first + lap)))
        return stored

    def finished(self, card_cons):
        """Return the number of retired entries that :meth:`advance` has not processed."""
        return self._wrap(card_cons - self.cons)

    def advance(self, card_cons):
        """Remove the entries before the card's consumer index ``card_cons``. Return the cookies of their descriptors.

        Raises
        ------
        RuntimeError
            If the index is beyond the entries that the card was given.
        """
        finished = (card_cons - self.cons) % self.laps
        if not finished:
            return []
        if finished > self.prod - self.cons:
            raise RuntimeError(f"{self.ring.name}: the card finished {finished} of {self.prod - self.cons} entries")
        self.cons += finished
        take = self._cookies.popleft
        cookies = [take() for _ in range(finished)]
        if self._parts:
            cookies = [cookie for cookie in cookies if cookie is not _PART]
            self._parts -= finished - len(cookies)
        return cookies


class CardToHostRing(_Ring):
    """Ring that the card fills. The driver polls memory only.

    Registers are written as rarely as possible: the consumer index when part of the ring was consumed, and the arming
    of the interrupt, which includes the index, once for each interrupt.

    Attributes
    ----------
    ahead : (view of a byte, int)
        Location of the next entry's phase, and its value once the entry is valid.
    """

    BATCH = 16
    RELEASED_AT_ONCE = 8   # a release covers at least 1/8 of the ring

    def __init__(self, device, ring, log2):
        super().__init__(device, ring, log2)
        self._armed = False
        self._move(0)

    def enable(self):
        super().enable()
        self._armed = False

    def clear(self):
        super().clear()
        self._move(0)

    def _move(self, prod):
        """Continue at index ``prod``."""
        self.prod, at = prod, prod % self.depth
        start = at * abi.BLOCK_BYTES
        self._next = (start, min(self.BATCH, self.depth - at) * abi.BLOCK_BYTES)
        self.ahead = (self.buffer.view(start, 1), self._phase(prod))

    def poll(self):
        """Return the new entries, oldest first, at most :attr:`BATCH`. They stay in the ring until :meth:`release`."""
        (start, size), (head, phase) = self._next, self.ahead
        if head[0] & PHASE != phase:
            return []
        phases = self.buffer.read(start, size)[::abi.BLOCK_BYTES]
        count = min(len(phases), self.depth - (self.prod - self.cons))
        valid = 0
        while valid < count and phases[valid] & PHASE == phase:
            valid += 1
        if not valid:
            return []
        # Read again: data that was read together with the phase may be older than the phase.
        data = self.buffer.read(start, valid * abi.BLOCK_BYTES)
        self._move(self.prod + valid)
        self._armed = False   # the first of them has raised the interrupt, or will
        return [data[i : i + abi.BLOCK_BYTES] for i in range(0, len(data), abi.BLOCK_BYTES)]

    def close(self):
        self.ahead = (b"\0", PHASE)     # the memory must not be read any more
        super().close()

    def release(self, at_once=False):
        """Allow the card to overwrite the polled entries: before the ring becomes full, or ``at_once``."""
        if at_once or (self.prod - self.cons) * self.RELEASED_AT_ONCE >= self.depth:
            self.cons = self.prod
            self.device.write32(self.registers["cons"], self._wrap(self.cons))

    def arm(self):
        """Arm one interrupt for an entry that was not polled yet. Releases the polled entries.

        An armed interrupt that was not raised yet suffices. If an entry is there nevertheless, another waiting thread
        may have received the interrupt for another ring.
        """
        if self._armed and not rings_with_entries((self,)):
            return
        self._armed = True
        self.cons = self.prod
        self.device.write32(self.registers["cons"], self._wrap(self.cons) | 1 << abi.ARM_BIT)


def rings_with_entries(rings):
    """Return those of several :class:`CardToHostRing` that have an entry that was not polled."""
    found = []
    for ring in rings:
        head, phase = ring.ahead
        if head[0] & PHASE == phase:
            found.append(ring)
    return found
