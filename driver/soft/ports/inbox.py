"""Frames that came to a port and wait for the endpoint."""

import collections


class Inbox:
    """What receives at a port that is handed frames one by one.

    Parameters
    ----------
    depth : int
        Frames that wait to be received; more are lost, and counted.

    Attributes
    ----------
    lost : int
    """

    def __init__(self, depth):
        self.depth, self.lost = depth, 0
        self._came = collections.deque()

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
