"""A ring in shared memory, as the daemon has it."""

from ..ibverbs.rings import RING_HEADER
from ..terms.errors import PyverbsError
from .quota import What
from .shared_memory import Given, create, words_of

PROD, CONS, DONE, ARMED = (RING_HEADER.offset_of(name) // 32 for name in ("prod", "cons", "done", "armed"))
_MASK = (1 << 32) - 1


class Violation(PyverbsError):
    """A program did what the library never does: it is not served any longer."""


class SharedRing:
    """Slots of equal size, a power of two of them, and the numbers in front of them.

    Attributes
    ----------
    file : Given
        For the program.
    own : int
        This side's own number, ``prod`` or ``cons``: what the memory says of it nobody has to believe.
    """

    def __init__(self, name, least, slot_bytes):
        self.slots = max(2, 1 << (least - 1).bit_length())
        self.slot_bytes = -(-slot_bytes // 16) * 16
        file, self.mapping = create(name, RING_HEADER.size_bytes + self.slots * self.slot_bytes)
        self.file = Given(file)
        self.words = words_of(self.mapping)
        self.own = 0

    @property
    def amounts(self):
        """What it costs, by :class:`What`."""
        return {What.RINGS: len(self.mapping), What.MAPPINGS: 1}

    def place(self, number):
        """Where slot ``number`` starts."""
        return RING_HEADER.size_bytes + number % self.slots * self.slot_bytes

    @property
    def filled(self):
        """Slots that the program filled and this side has not taken.

        Raises
        ------
        Violation
        """
        count = self.words[PROD] - self.own & _MASK
        if count > self.slots:
            raise Violation(f"a ring of {self.slots} slots has {count} filled ones")
        return count

    @property
    def waiting(self):
        """Slots that this side filled and the program has not taken. See :attr:`filled`."""
        count = self.own - self.words[CONS] & _MASK
        if count > self.slots:
            raise Violation(f"a ring of {self.slots} slots has {count} filled ones")
        return count

    def took(self):
        """A slot is taken: the program may not fill it before it is ``done``, but may see that."""
        self.own = self.own + 1 & _MASK
        self.words[CONS] = self.own

    def put(self):
        """A slot is filled: the program may take it."""
        self.own = self.own + 1 & _MASK
        self.words[PROD] = self.own

    def done(self, outstanding):
        """All that was taken is done with, but for the last so many."""
        self.words[DONE] = self.own - outstanding & _MASK

    def drop(self):
        """What the program filled is as if it had never been."""
        self.own = self.words[PROD]
        self.words[CONS] = self.words[DONE] = self.own

    def close(self):
        self.words.release()
        self.mapping.close()
        self.file.close()
