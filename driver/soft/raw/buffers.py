"""Frame buffers and the transmit queue, with flow control and back pressure (document: "Error Handling")."""

import collections

from .packet import build


class BufferPool:
    """Frame buffers of a host (mbufs in the document), shared by frames to be sent and frames that arrived early.

    Early frames get at most half of the buffers, so that no peer can keep the host from sending.
    """

    def __init__(self, size):
        self.size, self.used = size, 0

    def take(self, *, early=False):
        """Allocate a buffer and return true, or return false if none is free."""
        if self.used >= (self.size // 2 if early else self.size):
            return False
        self.used += 1
        return True

    def release(self):
        """Free a buffer."""
        self.used -= 1


class TransmitQueue:
    """Queue of frames for the NIC.

    Parameters
    ----------
    mac : int
        MAC address of the host.
    size : int
        Capacity in frames. A quarter is reserved for replies, so that requests never delay them.
    buffers : BufferPool
    counts : Counter
        ``tx_queue_full`` and ``out_of_memory`` count the frames that were not queued, by cause.
    """

    def __init__(self, mac, size, buffers, counts):
        self.mac, self.size, self.buffers, self.counts = mac, size, buffers, counts
        self._frames = collections.deque()

    def full(self, *, reply=False):
        """Return the reason why no frame can be queued now, as the name of a counter, or None."""
        if len(self._frames) >= (self.size if reply else self.size - self.size // 4):
            return "tx_queue_full"
        return "out_of_memory" if self.buffers.used >= self.buffers.size else None

    def send(self, packet, *, reply=False):
        """Queue a packet of this host; return false, and count it, if there is no space (back pressure)."""
        if why := self.full(reply=reply):
            self.counts[why] += 1
            return False
        self.buffers.take()
        packet.src_mac = self.mac
        self._frames.append(build(packet))
        return True

    def take(self, most):
        """Return and remove up to ``most`` frames for the NIC, oldest first."""
        frames = [self._frames.popleft() for _ in range(min(most, len(self._frames)))]
        for _ in frames:
            self.buffers.release()
        return frames

    def __len__(self):
        return len(self._frames)
