"""A port that ends in a function: for hosts in one program."""

import collections


class MemoryPort:
    """Frames to a function, frames from whoever has them.

    Parameters
    ----------
    carry : callable(frame)
        Takes what is sent.
    depth : int
        Frames that wait to be received; more are lost, and counted.
    room : int
        Frames it takes in a round; may be changed at any time.

    Attributes
    ----------
    lost : int
    """

    def __init__(self, carry, *, depth=1024, room=1024):
        self._carry, self.depth, self.room = carry, depth, room
        self._came = collections.deque()
        self.lost = 0

    def arrive(self, frame):
        """A frame came."""
        if len(self._came) >= self.depth:
            self.lost += 1
        else:
            self._came.append(frame)

    def receive(self):
        """The frames that came, oldest first."""
        frames, self._came = self._came, collections.deque()
        return frames

    def send(self, frame):
        """Hand a frame over."""
        self._carry(frame)
