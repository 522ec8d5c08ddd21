"""Port that ends in a function: for hosts in one program."""

from .inbox import Inbox


class MemoryPort(Inbox):
    """Port that hands frames to a function, and gets frames by :meth:`Inbox.arrive`.

    Parameters
    ----------
    carry : callable(frame)
        Function that takes sent frames.
    depth : int
        See :class:`Inbox`.
    space : int
        Number of frames that it takes in a round; may be changed at any time.
    """

    def __init__(self, carry, *, depth=1024, space=1024):
        super().__init__(depth)
        self._carry, self.space = carry, space

    def send(self, frame):
        """Hand a frame to the function."""
        self._carry(frame)
