"""Pool of table indices of the card, each reused as late as possible."""

import collections

from ..terms.errors import OutOfResources


class IndexPool:
    """Free indices, the one that was freed first at the front.

    Parameters
    ----------
    size : int
    subject : str
        Name of the indexed objects, for error messages.
    """

    def __init__(self, size: int, subject: str) -> None:
        self.size, self.subject = size, subject
        self._free = collections.deque(range(size))

    def take(self) -> int:
        """Return a free index.

        Raises
        ------
        MemoryError
            If there is none.
        """
        if not self._free:
            raise OutOfResources(f"all {self.size} {self.subject} are in use")
        return self._free.popleft()

    @property
    def free(self) -> int:
        """Number of free indices."""
        return len(self._free)

    def release(self, index: int) -> None:
        """Free an index."""
        self._free.append(index)
