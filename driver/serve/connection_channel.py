"""A channel of connection events: what a program's file of the `rdma_cm` device is to the daemon."""

import collections

from ..terms.errors import NoRoom
from .client import EventPipe
from .quota import What
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
        super().__init__(client)
        self.client, self.ids, self._events = client, {}, collections.deque()

    def put(self, owner, child=None, **fields):
        """An event of ``owner``; a program that takes none is served no longer."""
        try:
            self.client.account.take({What.EVENTS: 1})
            self._events.append((owner, child, fields))
            self.tell(TOKEN)
        except (NoRoom, Violation) as problem:
            self.client.violated = Violation(str(problem))

    def take(self):
        """Fields of the oldest event, or None."""
        if not self._events:
            return None
        owner, _, fields = self._events.popleft()
        self.client.account.give({What.EVENTS: 1})
        owner.reported += 1
        return fields

    def drop(self, owner):
        """Forget the events of somebody: ``[(owner, child, fields)]`` that nobody took."""
        dropped = [event for event in self._events if event[0] is owner]
        self._events = collections.deque(event for event in self._events if event[0] is not owner)
        self.client.account.give({What.EVENTS: len(dropped)})
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
