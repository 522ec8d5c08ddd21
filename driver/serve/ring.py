"""Daemon's end of a ring in shared memory."""

from ..ibverbs.rings import RING_HEADER
from ..terms.errors import OutOfResources, PyverbsError
from .quota import ResourceKind
from .shared_memory import OwnedDescriptor, create, ordered, words_of

PROD, CONS, DONE, ARMED = (RING_HEADER.offset_of(name) // 32 for name in ("prod", "cons", "done", "armed"))
_MASK = (1 << 32) - 1


class Violation(PyverbsError):
    """Protocol violation that the library never commits: the program is served no longer."""


class Ended(Violation):
    """The program has ended, which is not a fault."""


class SharedRing:
    """Slots of equal size, a power of two of them, and a header with indices.

    Attributes
    ----------
    file : OwnedDescriptor
        File for the program.
    own : int
        Index of this side, ``prod`` or ``cons``. The copy in shared memory is not trusted.
    """

    def __init__(self, name, least, slot_bytes):
        self.slots = max(2, 1 << (least - 1).bit_length())
        self.slot_bytes = -(-slot_bytes // 16) * 16
        file, self.mapping = create(name, RING_HEADER.size_bytes + self.slots * self.slot_bytes)
        self.file = OwnedDescriptor(file)
        self.words = words_of(self.mapping)
        self.own = 0

    def allowed(self, allow):
        """Return the ring if ``allow(ring)`` does not raise OutOfResources; close it otherwise."""
        try:
            allow(self)
        except OutOfResources:
            self.close()
            raise
        return self

    @property
    def amounts(self):
        """Cost of the ring, by :class:`ResourceKind`."""
        return {ResourceKind.RINGS: len(self.mapping), ResourceKind.MAPPINGS: 1}

    def place(self, number):
        """Return the offset of slot ``number``."""
        return RING_HEADER.size_bytes + number % self.slots * self.slot_bytes

    @property
    def filled(self):
        """Number of slots that the program filled and this side has not taken.

        Raises
        ------
        Violation
            If that is more than the ring has.
        """
        count = self.words[PROD] - self.own & _MASK
        ordered()
        if count > self.slots:
            raise Violation(f"a ring of {self.slots} slots has {count} filled ones")
        return count

    def posted(self, outstanding):
        """Return :attr:`filled` of a ring of work requests, of which ``outstanding`` were taken and are not done.

        Raises
        ------
        Violation
            If more requests than the ring has slots would be outstanding.
        """
        count = self.filled
        if count + outstanding > self.slots:
            raise Violation(f"a ring of {self.slots} slots has {count} filled ones and {outstanding} that are not done")
        return count

    @property
    def waiting(self):
        """Number of slots that this side filled and the program has not taken. Raises like :attr:`filled`."""
        count = self.own - self.words[CONS] & _MASK
        ordered()
        if count > self.slots:
            raise Violation(f"a ring of {self.slots} slots has {count} filled ones")
        return count

    def took(self):
        """Publish that a slot is taken; the program may refill it only after :meth:`done`."""
        self.own = self.own + 1 & _MASK
        ordered()
        self.words[CONS] = self.own

    def put(self):
        """Publish that a slot is filled; the program may take it."""
        self.own = self.own + 1 & _MASK
        ordered()
        self.words[PROD] = self.own

    def done(self, outstanding):
        """Retire all slots that were taken, except the last ``outstanding``."""
        self.words[DONE] = self.own - outstanding & _MASK

    def begin(self, outstanding):
        """Begin with this number of requests that are taken, and not done."""
        self.own = outstanding
        self.words[PROD] = self.words[CONS] = outstanding

    def take_over(self, old, first, count):
        """Copy ``count`` slots of another ring, from number ``first`` on, to the slots from 0 on.

        They are as large, and fit in this ring. All programs may wait meanwhile, for the lock of an engine.
        """
        size, head = self.slot_bytes, min(count, old.slots - first % old.slots)
        for to, number, slots in ((0, first, head), (head, first + head, count - head)):
            at, into = old.place(number), self.place(to)
            self.mapping[into : into + slots * size] = memoryview(old.mapping)[at : at + slots * size]

    def drop(self):
        """Discard all slots that the program filled."""
        self.own = self.words[PROD]
        self.words[CONS] = self.words[DONE] = self.own

    def close(self):
        self.words.release()
        self.mapping.close()
        self.file.close()
