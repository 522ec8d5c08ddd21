"""Indices of a table of the card, each used again as late as possible."""

import collections

from ..terms.errors import NoRoom


class IndexPool:
    """Free indices, the one that was given back longest ago first.

    Parameters
    ----------
    size : int
    what : str
        What they are indices of, for whoever gets none.
    """

    def __init__(self, size, what):
        self.size, self.what = size, what
        self._free = collections.deque(range(size))

    def take(self):
        """A free index.

        Raises
        ------
        MemoryError
            If there is none.
        """
        if not self._free:
            raise NoRoom(f"all {self.size} {self.what} are in use")
        return self._free.popleft()

    @property
    def free(self):
        """How many are free."""
        return len(self._free)

    def give(self, index):
        """It is free again."""
        self._free.append(index)
