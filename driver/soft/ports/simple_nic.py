"""The card's Simple NIC as a port: raw frames through its rings."""

import collections


class SimpleNicPort:
    """An open card's raw frames.

    Parameters
    ----------
    context : Context
        Its :meth:`progress` is what brings frames.
    wanted : callable(frame)
        Whether a raw frame of the card is one for this port; others stay with the other handlers.
    depth : int
        Frames that wait to be received; more are lost, and counted.

    Attributes
    ----------
    lost : int
    """

    def __init__(self, context, wanted, *, depth=1024):
        self.context, self.wanted, self.depth = context, wanted, depth
        self._came = collections.deque()
        self.lost = 0
        context.raw_frame_handlers.append(self._arrive)

    def _arrive(self, frame, _entry):
        if not self.wanted(frame):
            return
        if len(self._came) >= self.depth:
            self.lost += 1
        else:
            self._came.append(bytes(frame))

    def receive(self):
        """The frames that came, oldest first."""
        frames, self._came = self._came, collections.deque()
        return frames

    @property
    def room(self):
        """Frames the NIC_TX ring takes now: none is queued beside it."""
        nic = self.context.engine.nic
        return 0 if nic.busy else nic.tx.room

    def send(self, frame):
        """Hand a frame to the card."""
        self.context.send_raw(frame)

    def close(self):
        """Take no frames any more."""
        self.context.raw_frame_handlers.remove(self._arrive)
