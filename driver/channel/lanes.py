"""Counters of one end for each kind of work request."""




class ChannelError(ConnectionError):
    """The channel failed and cannot be used any more."""


class PeerError(ChannelError):
    """The peer violated the protocol."""


class LocalLane:
    """Work requests that only this end limits: RDMA reads or writes.

    Parameters
    ----------
    name : str
        For error messages.
    capacity : int

    Attributes
    ----------
    local_remain : int
        Number of requests that may still be posted.
    """

    __slots__ = ("capacity", "local_remain", "name")

    def __init__(self, name: str, capacity: int) -> None:
        self.name, self.capacity = name, capacity
        self.local_remain = capacity

    @property
    def open(self) -> bool:
        """True if a request may be posted now."""
        return self.local_remain > 0

    def post(self) -> None:
        """Count a request that is posted."""
        self.local_remain -= 1

    def complete(self) -> None:
        """Count a completion. Raise ValueError if no request is outstanding."""
        if self.local_remain >= self.capacity:
            raise ValueError(f"a {self.name} completed, but none is outstanding")
        self.local_remain += 1


class Lane(LocalLane):
    """Sends, which the peer limits as well, and receives of the same kind.

    Parameters
    ----------
    name, capacity
        As for :class:`LocalLane`; the peer's capacity is the same.
    threshold : int
        An acknowledgement is due when more were received.

    Attributes
    ----------
    remote_remain : int
        Number of receives that the peer has left, as far as it has acknowledged.
    held : int
        Received ones whose receive is not posted again yet.
    owed : int
        Received ones whose receive is posted again, not acknowledged yet.
    """

    __slots__ = ("held", "owed", "remote_remain", "threshold")

    def __init__(self, name: str, capacity: int, threshold: int) -> None:
        super().__init__(name, capacity)
        self.threshold = threshold
        self.remote_remain = capacity
        self.held = self.owed = 0

    @property
    def open(self) -> bool:
        return self.local_remain > 0 and self.remote_remain > 0

    @property
    def outstanding(self) -> int:
        """Number of sent ones that the peer has not acknowledged."""
        return self.capacity - self.remote_remain

    def post(self) -> None:
        self.local_remain -= 1
        self.remote_remain -= 1

    def acknowledged(self, count: int) -> None:
        """Note that the peer posted ``count`` receives again. Raise PeerError if fewer are outstanding."""
        if count > self.outstanding:
            raise PeerError(f"the peer acknowledged {count} {self.name}s; {self.outstanding} were outstanding")
        self.remote_remain += count

    def receive(self) -> None:
        """Count a received one. Raise PeerError if the peer had no credit for it."""
        if self.held + self.owed >= self.capacity:
            raise PeerError(f"the peer sent more than {self.capacity} {self.name}s that were not acknowledged")
        self.held += 1

    def repost(self) -> None:
        """Note that a receive is posted again. Raise ValueError if none is missing."""
        if not self.held:
            raise ValueError(f"no receive of a {self.name} is missing")
        self.held -= 1
        self.owed += 1

    @property
    def due(self) -> bool:
        """True if an acknowledgement is due."""
        return self.owed > self.threshold

    def settle(self) -> int:
        """Return the number that the acknowledgement counts, which is being sent."""
        owed, self.owed = self.owed, 0
        return owed
