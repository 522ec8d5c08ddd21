"""The blocks of one QP in the knitting buffer."""

import collections


class Chain:
    """The blocks of one QP that hold its list, head first. While the list is empty, it holds none.

    Attributes
    ----------
    lines : deque of int
        Linked blocks.
    """

    def __init__(self, pool):
        self._pool = pool
        self.lines = collections.deque()

    @property
    def has_room(self):
        """Whether :meth:`link` finds a block."""
        return self._pool.may_take(self)

    def link(self, fields):
        """Write a node behind the last one; (line, its 64 bytes), or None if no block is to be had now."""
        line = self._pool.take(self)
        if line is None:
            return None
        data = self._pool.extents.write(line, fields)
        if self.lines:
            self._pool.extents.link(self.lines[-1], line)
        self.lines.append(line)
        return line, data

    def retire(self, line):
        """The card is done with the oldest linked block.

        Raises
        ------
        RuntimeError
            If ``line`` is another one.
        """
        if not self.lines or self.lines[0] != line:
            raise RuntimeError(f"the card retired block {line:#x}, which is not the list's head")
        self._pool.give(self, self.lines.popleft())

    def number(self, line):
        """What the card calls a block."""
        return self._pool.extents.number(line)

    def close(self):
        """Give everything back, in constant time; the card does not know the list any more."""
        self._pool.close_chain(self)
