"""What Python asks of compiled PCIe, and random numbers that it shares with machine code."""

import random

import numpy as np

from ..timing import CYCLE_NS, HostTiming
from .cells import cell
from .state import CARD, DRAWS

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

    written_at = cell(CARD, "written_at")

    def __init__(self, loop, timing, host=None, seed=0, card=None):
        self.loop, self.timing, self.host = loop, timing, host or HostTiming()
        self.machine, self.number, self.cells = card.machine, card.number, card.cells
        self.pace = CYCLE_NS / (1 - self.host.stall)
        self._draws = Draws(random.Random(f"pcie {seed}"), card, "draws", "draw")
        self.refill = self._draws.fill

    def line(self, time_ns, read):
        if self.cells.numbers[_DRAW["draw"]] > DRAWS - 2:
            self.refill()
        self.machine.line(self.number, time_ns, read)

    def write(self, time_ns, length, ahead=0.0):
        return self.machine.write(self.number, time_ns, length, ahead)

    def write_payload(self, time_ns, length):
        return self.machine.write_payload(self.number, time_ns, length)
