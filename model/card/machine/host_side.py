"""What Python asks of compiled PCIe, and random numbers that it shares with machine code."""

import random

import numpy as np

from ..timing import CYCLE_NS, HostTiming
from ..write_engine import CLIENTS, STREAM, WriteEngine
from . import run
from .state import CARD, DRAWS, PAGE, TOLD_FIELDS, WRITE_FIELDS, WRITES
from .write_engine import NO_KEY

_GRANT_FREE, _LAST_BEAT, _BACKLOG = (CARD.names.index(name) for name in ("grant_free", "last_beat", "backlog"))
_TOLD = CARD.names.index("told")
_LEFT = 2       # of a write's numbers: when it is over the link
_DRAW = {name: CARD.names.index(name) for name in ("draw", "line_draw")}


class Draws:
    """Random numbers of a generator, drawn ahead into an array of the machine.

    Parameters
    ----------
    rng : random.Random
    card : CompiledCard
    array, place : str
        Names of the array, and of the card's number that says where the next one is.
    """

    def __init__(self, rng, card, array, place):
        self._card, self._array, self._place = card, array, _DRAW[place]
        # numpy's generator of old draws the same numbers, many at once
        _, (*key, at), _ = rng.getstate()
        self._rng = np.random.RandomState()
        self._rng.set_state(("MT19937", key, at))
        card.cells.numbers[self._place] = DRAWS

    def fill(self):
        """Draw as many as there is room for."""
        numbers, array = self._card.cells.numbers, getattr(self._card.machine.w, self._array)[self._card.number]
        at = numbers[self._place]
        array[:DRAWS - at] = array[at:]
        array[DRAWS - at:] = self._rng.random_sample(at)
        numbers[self._place] = 0

    def random(self):
        """The next number."""
        numbers = self._card.cells.numbers
        at = numbers[self._place]
        if at == DRAWS:
            self.fill()
            at = 0
        numbers[self._place] = at + 1
        return float(getattr(self._card.machine.w, self._array)[self._card.number, at])


class CompiledPcie:
    """:class:`~weft.model.card.pcie.Pcie`, which is described there, of a compiled card."""

    def __init__(self, loop, timing, host=None, seed=0, card=None):
        self.loop, self.timing, self.host = loop, timing, host or HostTiming()
        self.machine, self.number = card.machine, card.number
        self.pace = CYCLE_NS / (1 - self.host.stall)
        self._draws = Draws(random.Random(f"pcie {seed}"), card, "draws", "draw")
        self.refill = self._draws.fill
        self.writes = CompiledWrites(self)
        self.bind(card.cells)

    def bind(self, cells):
        """The card's numbers are in other arrays."""
        self.cells = cells
        self.writes.bind(cells)

    def line(self, time_ns, client, read):
        if self.cells.numbers[_DRAW["draw"]] > DRAWS - 2:
            self.refill()
        self.machine.line(self.number, time_ns, client, read)

    def down(self, size):
        return self.machine.call(run.down, self.number, size)


class CompiledWrites:
    """:class:`~weft.model.card.write_engine.WriteEngine`, which is described there, of a compiled card."""

    ended = False

    def __init__(self, pcie):
        self._pcie, self._loop, self._waiting, self._key = pcie, pcie.loop, {}, CLIENTS

    def bind(self, cells):
        """The card's numbers are in other arrays."""
        w, number = self._pcie.machine.w, self._pcie.number
        self._numbers, self._told, self._writes = cells.numbers, *(
            memoryview(found[number].reshape(-1)) for found in (w.told, w.writes))

    def stream(self, time_ns, segments, client=STREAM, granted=None):
        key = NO_KEY
        if granted:
            self._key += 1
            key = self._key
            self._waiting[key] = granted
        (address, first), (second_address, second), *_ = (*segments, (0, 0), (0, 0))
        return self._call(run.write_stream, time_ns, client, address % PAGE, first, second_address % PAGE, second, key)

    def ask(self, client, time_ns, address, length, granted):
        self._waiting[client] = granted
        self._call(run.write_ask, client, time_ns, address % PAGE, length)

    def placed(self, ticket):
        at = self._call(run.write_placed, ticket)
        return None if at < 0.0 else at

    def tell(self):
        """Those who were granted are told."""
        told = self._told[:self._numbers[_TOLD] * TOLD_FIELDS].tolist()
        self._numbers[_TOLD] = 0
        for key, last, packet in zip(*[iter(told)] * TOLD_FIELDS, strict=True):
            self._waiting.pop(int(key))(last, int(packet))

    def seen(self, packet):
        return self._writes[(packet & WRITES - 1) * WRITE_FIELDS + _LEFT] + self._pcie.timing.pcie_hop

    then, _arrive = WriteEngine.then, WriteEngine._arrive

    @property
    def again(self):
        return max(self._pcie.cells.floats[_GRANT_FREE], self._pcie.loop.now_ns + CYCLE_NS)

    @property
    def behind_ns(self):
        floats = self._pcie.cells.floats
        return max(0.0, floats[_LAST_BEAT] - self._pcie.loop.now_ns) + floats[_BACKLOG]

    def _call(self, function, *arguments):
        return self._pcie.machine.call(function, self._pcie.number, *arguments)
