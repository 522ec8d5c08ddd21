"""What one end counts for each kind of work request."""

from .failure import PeerError


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
        How many may still be posted.
    """

    __slots__ = ("capacity", "local_remain", "name")

    def __init__(self, name, capacity):
        self.name, self.capacity = name, capacity
        self.local_remain = capacity

    @property
    def open(self):
        """One may be posted now."""
        return self.local_remain > 0

    def post(self):
        """One is being posted."""
        self.local_remain -= 1

    def complete(self):
        """One completed; ValueError if none is outstanding."""
        if self.local_remain >= self.capacity:
            raise ValueError(f"a {self.name} completed, but none is outstanding")
        self.local_remain += 1


class Lane(LocalLane):
    """Sends, which the peer limits as well, and what it sends of the same kind.

    Parameters
    ----------
    name, capacity
        As for :class:`LocalLane`; the peer's capacity is the same.
    threshold : int
        More than so many received ones call for an acknowledgement.

    Attributes
    ----------
    remote_remain : int
        How many more the peer has receives for, as far as it said.
    held : int
        Received ones whose receive is not posted again yet.
    owed : int
        Received ones whose receive is posted again, which the peer was not told yet.
    """

    __slots__ = ("held", "owed", "remote_remain", "threshold")

    def __init__(self, name, capacity, threshold):
        super().__init__(name, capacity)
        self.threshold = threshold
        self.remote_remain = capacity
        self.held = self.owed = 0

    @property
    def open(self):
        return self.local_remain > 0 and self.remote_remain > 0

    @property
    def outstanding(self):
        """Sent ones that the peer did not acknowledge."""
        return self.capacity - self.remote_remain

    def post(self):
        self.local_remain -= 1
        self.remote_remain -= 1

    def acknowledged(self, count):
        """The peer posted ``count`` receives again; PeerError if that many are not outstanding."""
        if count > self.outstanding:
            raise PeerError(f"the peer acknowledged {count} {self.name}s; {self.outstanding} were outstanding")
        self.remote_remain += count

    def receive(self):
        """One came; PeerError if the peer had no right to send it."""
        if self.held + self.owed >= self.capacity:
            raise PeerError(f"the peer sent more than {self.capacity} {self.name}s that were not acknowledged")
        self.held += 1

    def repost(self):
        """The receive of one that came is posted again; ValueError if none is missing."""
        if not self.held:
            raise ValueError(f"no receive of a {self.name} is missing")
        self.held -= 1
        self.owed += 1

    @property
    def due(self):
        """Enough came to tell the peer."""
        return self.owed > self.threshold

    def settle(self):
        """How many the acknowledgement counts that is being sent."""
        owed, self.owed = self.owed, 0
        return owed
