"""Blocks of one QP in the knitting buffer."""

import collections


class Chain:
    """Blocks that hold the list of one QP, head first. An empty list holds none.

    Attributes
    ----------
    lines : deque of int
        Linked blocks.
    """

    def __init__(self, pool):
        self._pool = pool
        self.lines = collections.deque()

    @property
    def has_space(self):
        """True if :meth:`link` gets a block."""
        return self._pool.may_take(self)

    def link(self, fields):
        """Write a node after the last one. Return (line, its 64 bytes), or None if no block is available now."""
        line = self._pool.take(self)
        if line is None:
            return None
        data = self._pool.extents.write(line, fields)
        if self.lines:
            self._pool.extents.link(self.lines[-1], line)
        self.lines.append(line)
        return line, data

    def retire(self, line):
        """Free the oldest linked block, which the card has retired.

        Raises
        ------
        RuntimeError
            If ``line`` is another one.
        """
        if not self.lines or self.lines[0] != line:
            raise RuntimeError(f"the card retired block {line:#x}, which is not the list's head")
        self._pool.release(self, self.lines.popleft())

    def number(self, line):
        """Return the card's number of a block."""
        return self._pool.extents.number(line)

    def close(self):
        """Free all blocks, in constant time. Requires that the card does not have the list any more."""
        self._pool.close_chain(self)
