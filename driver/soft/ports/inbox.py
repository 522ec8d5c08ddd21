"""Queue of received frames that wait for the endpoint."""

import collections


class Inbox:
    """Receive side of a port that gets frames one by one.

    Parameters
    ----------
    depth : int
        Capacity in frames; further ones are lost, and counted.

    Attributes
    ----------
    lost : int
    """

    def __init__(self, depth):
        self.depth, self.lost = depth, 0
        self._came = collections.deque()

    def arrive(self, frame):
        """Queue a received frame."""
        if len(self._came) >= self.depth:
            self.lost += 1
        else:
            self._came.append(frame)

    def receive(self):
        """Return and remove the received frames, oldest first."""
        frames, self._came = self._came, collections.deque()
        return frames
