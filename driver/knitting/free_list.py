"""Free list of knitting blocks, with a preference for adjacent blocks of a list.

Blocks are in extents, and extents are divided into strips of :data:`STRIP` blocks. A list continues with the block
after its last one if that is free. Otherwise it starts an unused strip, where it can continue. All operations take
constant time, whatever the number of blocks.
"""

import bisect
import collections

STRIP = 16
_WHOLE = (1 << STRIP) - 1


class _Strips:
    """Free blocks of one extent, as one bit mask per strip."""

    def __init__(self, base, blocks):
        self.base, self.blocks, self.free = base, blocks, blocks
        self._mask = [_WHOLE if i + STRIP <= blocks else (1 << blocks - i) - 1 for i in range(0, blocks, STRIP)]
        self._full = list(self._mask)
        # Dictionaries as ordered sets: the newest entry is taken first.
        self.whole = dict.fromkeys(reversed(range(len(self._mask))))
        self.partial = {}

    def is_free(self, at):
        return bool(self._mask[at // STRIP] >> at % STRIP & 1)

    def take(self, at):
        strip = at // STRIP
        self._mask[strip] &= ~(1 << at % STRIP)
        self.free -= 1
        self.whole.pop(strip, None)
        if self._mask[strip]:
            self.partial[strip] = None
        else:
            self.partial.pop(strip, None)

    def release(self, at):
        strip = at // STRIP
        self._mask[strip] |= 1 << at % STRIP
        self.free += 1
        if self._mask[strip] == self._full[strip]:
            self.partial.pop(strip, None)
            self.whole[strip] = None
        else:
            self.partial[strip] = None

    def first_of(self, strips):
        """Return the lowest free block of the newest strip in ``strips``."""
        strip = next(reversed(strips))
        mask = self._mask[strip]
        return strip * STRIP + (mask & -mask).bit_length() - 1


class FreeList:
    """Free blocks of all extents, by line (physical address divided by 64).

    The blocks of chains that :meth:`splice` frees count as free at once. They are sorted in a few at a time, by every
    :meth:`take` and by :meth:`sort_in`.
    """

    SORTED_PER_TAKE = 2

    def __init__(self):
        self._extents = []   # by line
        self._bases = []
        self.unsorted = collections.deque()
        self.count = 0

    def __len__(self):
        return self.count

    def add(self, base, blocks):
        """Add an extent with all its blocks."""
        at = bisect.bisect(self._bases, base)
        self._bases.insert(at, base)
        self._extents.insert(at, _Strips(base, blocks))
        self.count += blocks

    def remove(self, base):
        """Remove an extent whose blocks are all free and sorted in.

        Raises
        ------
        ValueError
            If one of them is not.
        """
        strips = self._find(base)
        if not self.is_unused(base):
            raise ValueError(f"{strips.blocks - strips.free} blocks of the extent at {base:#x} are in use")
        at = self._bases.index(base)
        del self._bases[at], self._extents[at]
        self.count -= strips.blocks

    def is_unused(self, base):
        strips = self._find(base)
        return strips.free == strips.blocks

    def _find(self, line):
        at = bisect.bisect(self._bases, line) - 1
        if at < 0 or line >= self._bases[at] + self._extents[at].blocks:
            return None
        return self._extents[at]

    def is_free(self, line):
        """Return true if a block is free and sorted in."""
        strips = self._find(line)
        return strips is not None and strips.is_free(line - strips.base)

    def take(self, wanted=None):
        """Return a free block: ``wanted`` if it is free.

        Raises
        ------
        IndexError
            If none is free.
        """
        self.sort_in(self.SORTED_PER_TAKE)
        if wanted is not None:
            strips = self._find(wanted)
            if strips is not None and strips.is_free(wanted - strips.base):
                return self._take(strips, wanted - strips.base)
        for kind in ("whole", "partial"):
            for strips in self._extents:
                if found := getattr(strips, kind):
                    return self._take(strips, strips.first_of(found))
        raise IndexError("no block is free")

    def _take(self, strips, at):
        strips.take(at)
        self.count -= 1
        return strips.base + at

    def release(self, line):
        """Free a block.

        Raises
        ------
        RuntimeError
            If it is free already, or in no extent.
        """
        self._sort(line)
        self.count += 1

    def _sort(self, line):
        strips = self._find(line)
        if strips is None or strips.is_free(line - strips.base):
            raise RuntimeError(f"block {line:#x} came back, but it was not in use")
        strips.release(line - strips.base)

    def splice(self, lines):
        """Free a deque of blocks in constant time. The deque belongs to the free list from now on."""
        if lines:
            self.count += len(lines)
            self.unsorted.append(lines)

    def sort_in(self, limit):
        """Sort in at most ``limit`` spliced blocks."""
        while self.unsorted and limit:
            lines = self.unsorted[0]
            while lines and limit:
                self._sort(lines.popleft())
                limit -= 1
            if not lines:
                self.unsorted.popleft()
