"""A port that ends in a function: for hosts in one program."""

from .inbox import Inbox


class MemoryPort(Inbox):
    """Frames to a function, frames from whoever has them.

    Parameters
    ----------
    carry : callable(frame)
        Takes what is sent.
    depth : int
        See :class:`Inbox`.
    room : int
        Frames it takes in a round; may be changed at any time.
    """

    def __init__(self, carry, *, depth=1024, room=1024):
        super().__init__(depth)
        self._carry, self.room = carry, room

    def send(self, frame):
        """Hand a frame over."""
        self._carry(frame)
