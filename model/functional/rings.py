"""Rings on the card's side, with the status block and the interrupts."""

from weft.driver.device.attached import MemoryFault
from weft.hdl.contract import abi

Ring, Reason = abi.Ring, abi.Reason
_BASE, _LOG2 = ({r: f"{r.name.lower()}_{part}" for r in Ring} for part in ("base", "log2"))
_CONS = {r: f"{r.name.lower()}_cons" for r in abi.HOST_TO_CARD}
_PART = {f"{r.name.lower()}_{part}": (r, part) for r in Ring for part in ("base", "log2", "prod", "cons")}


class BadEntry(AssertionError):
    """Descriptor that is dropped; ``reason`` is an abi.Reason."""

    def __init__(self, reason, sentence):
        super().__init__(sentence)
        self.reason = reason


class CardRings:
    """Indices of the seven rings, with the card's registers and host memory."""

    def __init__(self, card):
        self.card = card
        self.prod = dict.fromkeys(Ring, 0)
        self.cons = dict.fromkeys(Ring, 0)
        self.marked = dict.fromkeys(abi.CARD_TO_HOST, 0)   # entries not consumed, up to the newest marked one
        self.armed = dict.fromkeys(abi.CARD_TO_HOST, False)

    def _log2(self, ring):
        return self.card.registers[_LOG2[ring]] & 0xFF

    def enabled(self, ring):
        return bool(self.card.registers[_LOG2[ring]] >> abi.RING_ENABLE_BIT & 1)

    def _wrap(self, ring):
        return 2 << self._log2(ring)

    def _address(self, ring, index):
        return self.card.registers[_BASE[ring]] + index % (1 << self._log2(ring)) * abi.BLOCK_BYTES

    def _phase(self, ring, index):
        return 1 - (index >> self._log2(ring) & 1)

    def written(self, name, value):
        """Process a write to a ring's base or size register."""
        ring, part = _PART.get(name, (None, None))
        if part == "log2":
            self.prod[ring] = self.cons[ring] = 0
            self.marked[ring], self.armed[ring] = 0, False

    def doorbell(self, name, value):
        """Process a write of a producer or consumer index. One that moves backwards or too far is bad and ignored."""
        ring, part = _PART.get(name, (None, None))
        if ring is None or not self.enabled(ring):
            return
        new = value % self._wrap(ring)
        if part == "prod" and ring in abi.HOST_TO_CARD:
            if (new - self.prod[ring]) % self._wrap(ring) <= self.free(ring):
                self.prod[ring] = new
            else:
                self.bad(ring, BadEntry(Reason.BAD_DESCRIPTOR, f"the producer index of {ring.name} becomes {new}"))
        elif part == "cons" and ring in abi.CARD_TO_HOST:
            consumed = (new - self.cons[ring]) % self._wrap(ring)
            if consumed > (self.prod[ring] - self.cons[ring]) % self._wrap(ring):
                self.bad(ring, BadEntry(Reason.BAD_DESCRIPTOR, f"the consumer index of {ring.name} becomes {new}"))
                return
            self.marked[ring] = max(0, self.marked[ring] - consumed)
            self.cons[ring] = new
            self.armed[ring] |= bool(value >> abi.ARM_BIT & 1)
            self._interrupt(ring)

    def pushed(self, window, data=None):
        """Process a push of a whole descriptor or a part; it counts if the window is that of the next descriptor.

        ``window`` counts those of all rings. A push of the newest descriptor has no effect; any other is dropped and
        counted.

        Raises
        ------
        AssertionError
            If the pushed descriptor differs from the one in the ring.
        """
        page, window = divmod(window, abi.PUSH_WINDOWS)
        ring = abi.PUSH_RINGS[page]
        index, wrap = self.prod[ring], self._wrap(ring)
        windows = min(wrap, abi.PUSH_WINDOWS)
        behind = (window - index) % windows
        if not self.enabled(ring) or behind not in (0, windows - 1) or not (behind or self.free(ring)):
            self.card.refuse(Reason.BAD_DESCRIPTOR)
        elif not behind:
            self.prod[ring] = (index + 1) % wrap
            assert not self.card.checks_driver or data in (None, self.entry(ring, index)), \
                f"{ring.name}[{index}] differs from the entry that was pushed"

    def free(self, ring):
        """Return the number of entries that the driver may add to a host-to-card ring."""
        return (1 << self._log2(ring)) - (self.prod[ring] - self.cons[ring]) % self._wrap(ring)

    def read_register(self, name):
        ring, part = _PART.get(name, (None, None))
        if part == "prod" and ring in abi.CARD_TO_HOST:
            return self.prod[ring]
        if part == "cons" and ring in abi.HOST_TO_CARD:
            return self.cons[ring]
        return 0

    def peek(self, ring):
        """Return the oldest unfinished descriptor, or None. A bad one is dropped; the next follows in another event.

        Raises
        ------
        BadEntry
            If the card checks its driver: see :meth:`entry`.
        """
        if self.prod[ring] == self.cons[ring] or not self.enabled(ring):
            return None
        try:
            return self.entry(ring, self.cons[ring])
        except BadEntry as entry:
            self.bad(ring, entry)
            self.finish(ring)
            self.card.loop.call_in(0, self.go_on)
            return None

    def go_on(self):
        """Let the card process further descriptors."""
        if self.card.rings is self:
            self.card.pump()

    def bad(self, ring, entry):
        """Count a bad descriptor or doorbell. Raise it if the card checks its driver, unless its read failed."""
        if self.card.checks_driver and entry.reason is not Reason.DMA_ERROR:
            raise entry
        self.card.refuse(entry.reason)

    def entry(self, ring, index):
        """Return the descriptor at an index.

        Raises
        ------
        BadEntry
            If it cannot be read, its phase is wrong (doorbell before the write of the descriptor), or it is damaged.
        """
        try:
            entry = self.card.memory.read(self._address(ring, index), abi.BLOCK_BYTES)
        except MemoryFault as fault:
            raise BadEntry(Reason.DMA_ERROR, str(fault)) from None
        if entry[0] & 1 != self._phase(ring, index):
            raise BadEntry(Reason.BAD_DESCRIPTOR, f"{ring.name}[{index}] has a wrong phase")
        if abi.damage(entry):
            raise BadEntry(Reason.BAD_DESCRIPTOR, f"{ring.name}[{index}] is damaged")
        return entry

    def finish(self, ring):
        """Finish the oldest descriptor, unless the ring was stopped, and update the status block."""
        if self.cons[ring] != self.prod[ring]:
            self.cons[ring] = (self.cons[ring] + 1) % self._wrap(ring)
            self.notify()

    def notify(self):
        """Write the status block."""
        if address := self.card.registers["status_block"]:
            self.card.memory.write(address, self.status())

    def status(self):
        """Return the contents of the status block."""
        return abi.STATUS_BLOCK.pack(**{name: self.cons[ring] for ring, name in _CONS.items()})

    def space(self, ring):
        """Return the number of free entries of a card-to-host ring."""
        return (
            (1 << self._log2(ring)) - (self.prod[ring] - self.cons[ring]) % self._wrap(ring)
            if self.enabled(ring)
            else 0
        )

    def half_taken(self, ring):
        """Return whether half of the entries of a card-to-host ring are in use, or it is not enabled."""
        return 2 * self.space(ring) <= 1 << self._log2(ring)

    def slot(self, ring):
        return self.prod[ring] % (1 << self._log2(ring))

    def put(self, ring, entry, mark=False):
        """Write an entry to the host; :attr:`marked` is 0 again when the host has consumed those with ``mark``."""
        assert self.space(ring), f"{ring.name} overflows"
        data = bytes([entry[0] & ~1 | self._phase(ring, self.prod[ring])]) + entry[1:]
        self.store(ring, self._address(ring, self.prod[ring]), data)
        self.prod[ring] = (self.prod[ring] + 1) % self._wrap(ring)
        if mark:
            self.marked[ring] = (self.prod[ring] - self.cons[ring]) % self._wrap(ring)
        self._interrupt(ring)

    def store(self, ring, address, data):
        """Write an entry of ``ring`` to memory."""
        self.card.memory.write(address, data)

    def _interrupt(self, ring):
        if self.armed[ring] and self.prod[ring] != self.cons[ring]:
            self.armed[ring] = False
            self.card.interrupt(abi.VECTOR[ring])
