"""Frame buffers and the transmit queue: what flow control and backpressure come from (document: "Error Handling")."""

import collections

from .packet import build


class BufferPool:
    """The frame buffers of a host (mbufs in the document), shared by what waits to be sent and what came too early.

    Frames that came too early get at most half of them: no peer can keep the host from sending.
    """

    def __init__(self, size):
        self.size, self.used = size, 0

    def take(self, *, early=False):
        """Whether there was one; it is the caller's then."""
        if self.used >= (self.size // 2 if early else self.size):
            return False
        self.used += 1
        return True

    def give(self):
        """One is free again."""
        self.used -= 1


class TransmitQueue:
    """Frames that wait for the NIC.

    Parameters
    ----------
    mac : int
        Of the host.
    size : int
        Frames it holds. A quarter is kept for replies, so that requests never hold them up.
    buffers : BufferPool
    counts : Counter
        ``tx_queue_full`` and ``out_of_memory`` tell how often a frame found no place, and which.
    """

    def __init__(self, mac, size, buffers, counts):
        self.mac, self.size, self.buffers, self.counts = mac, size, buffers, counts
        self._frames = collections.deque()

    def full(self, *, reply=False):
        """Why no frame can be queued now: the name of a counter, or None."""
        if len(self._frames) >= (self.size if reply else self.size - self.size // 4):
            return "tx_queue_full"
        return "out_of_memory" if self.buffers.used >= self.buffers.size else None

    def send(self, packet, *, reply=False):
        """Queue a packet of this host; false, and counted, if there is no place (backpressure)."""
        if why := self.full(reply=reply):
            self.counts[why] += 1
            return False
        self.buffers.take()
        packet.src_mac = self.mac
        self._frames.append(build(packet))
        return True

    def take(self, most):
        """Up to ``most`` frames for the NIC, oldest first."""
        frames = [self._frames.popleft() for _ in range(min(most, len(self._frames)))]
        for _ in frames:
            self.buffers.give()
        return frames

    def __len__(self):
        return len(self._frames)
