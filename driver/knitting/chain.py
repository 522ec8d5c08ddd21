"""The blocks of one QP in the knitting buffer."""

import collections


class Chain:
    """The blocks of one QP: those that hold its list, head first, and the one announced as successor of the last.

    Attributes
    ----------
    head : int
        The line the list starts with.
    lines : deque of int
        Linked blocks.
    tail : int or None
        The pre-linked block: announced to the card, not written yet.
    """

    def __init__(self, pool, line):
        self._pool = pool
        self.head = self.tail = line
        self.lines = collections.deque()

    @property
    def has_room(self):
        """Whether :meth:`link` finds a block."""
        return self._pool.may_take(self)

    def link(self, fields):
        """Write a node into the pre-linked block; (line, its 64 bytes), or None if no successor is to be had now."""
        successor = self._pool.take(self)
        if successor is None:
            return None
        line = self.tail
        data = self._pool.extents.write(line, fields, successor)
        self.lines.append(line)
        self.tail = successor
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

    def close(self):
        """Give everything back, in constant time; the card does not know the list any more."""
        if self.tail is not None:
            self.lines.append(self.tail)
            self.tail = None
            self._pool.close_chain(self)
