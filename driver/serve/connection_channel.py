"""A channel of connection events: what a program's file of the `rdma_cm` device is to the daemon."""

import collections

from .client import EventPipe
from .ring import Violation

TOKEN = b"\1"      # an event is there; the event itself is asked for


class ConnectionChannel(EventPipe):
    """Events that the program takes one by one. For each there is a byte in the pipe, which the program takes first.

    Attributes
    ----------
    ids : dict of ConnectionId
        Whose events these are, as keys.
    """

    def __init__(self, client):
        super().__init__()
        self.client, self.ids, self._events = client, {}, collections.deque()

    def put(self, owner, child=None, **fields):
        """An event of ``owner``; a program that takes none is served no longer."""
        self._events.append((owner, child, fields))
        try:
            self.tell(TOKEN)
        except Violation as violation:
            self.client.violated = violation

    def take(self):
        """Fields of the oldest event, or None."""
        if not self._events:
            return None
        owner, _, fields = self._events.popleft()
        owner.reported += 1
        return fields

    def drop(self, owner):
        """Forget the events of somebody: ``[(owner, child, fields)]`` that nobody took."""
        dropped = [event for event in self._events if event[0] is owner]
        self._events = collections.deque(event for event in self._events if event[0] is not owner)
        return dropped

    def move(self, owner, channel):
        """Hand the events of somebody to another channel; how many."""
        events = self.drop(owner)
        for _, child, fields in events:
            channel.put(owner, child, **fields)
        return len(events)

    def close(self):
        """Its identifiers end with it."""
        for one in list(self.ids):
            one.end()
        super().close()
