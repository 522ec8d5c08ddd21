"""Channel of connection events: the daemon's end of a program's file of the `rdma_cm` device."""

import collections

from ..terms.errors import OutOfResources
from .client import EventPipe
from .quota import ResourceKind
from .ring import Violation

TOKEN = b"\1"      # announces an event, which the program then requests


class ConnectionChannel(EventPipe):
    """Events that the program takes one by one. For each event the pipe has a byte, which the program reads first.

    Attributes
    ----------
    ids : dict of ConnectionId
        Identifiers that report here, as keys.
    """

    def __init__(self, client):
        super().__init__(client)
        self.client, self.ids, self._events = client, {}, collections.deque()

    def put(self, owner, child=None, **fields):
        """Queue an event of ``owner``; a program with too many events is served no longer."""
        try:
            self.client.account.take({ResourceKind.EVENTS: 1})
            self._events.append((owner, child, fields))
            self.notify(TOKEN)
        except (OutOfResources, Violation) as problem:
            self.client.violated = Violation(str(problem))

    def take(self):
        """Return the fields of the oldest event, or None."""
        if not self._events:
            return None
        owner, _, fields = self._events.popleft()
        self.client.account.release({ResourceKind.EVENTS: 1})
        owner.reported += 1
        return fields

    def drop(self, owner):
        """Remove the events of ``owner`` that were not taken, and return them: ``[(owner, child, fields)]``."""
        dropped = [event for event in self._events if event[0] is owner]
        self._events = collections.deque(event for event in self._events if event[0] is not owner)
        self.client.account.release({ResourceKind.EVENTS: len(dropped)})
        return dropped

    def move(self, owner, channel):
        """Move the events of ``owner`` to another channel, and return their number."""
        events = self.drop(owner)
        for _, child, fields in events:
            channel.put(owner, child, **fields)
        return len(events)

    def close(self):
        """Close the channel; its identifiers end with it."""
        for one in list(self.ids):
            one.end()
        super().close()
