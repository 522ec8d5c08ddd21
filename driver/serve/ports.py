"""Ports of a card: which of them programs have."""

import errno
import weakref

from ..connection.agent import PORT_MAX
from ..terms.errors import PyverbsRDMAError

FIRST_PORT = 1 << 15       # of those that are taken when none is asked for
LISTENS = "somebody listens on port"
_of_cards = weakref.WeakKeyDictionary()


class Ports:
    """Ports of a card, and the identifiers that are bound to them.

    Attributes
    ----------
    bound : dict of int to set of ConnectionId
    """

    def __init__(self):
        self.bound = {}

    @classmethod
    def of(cls, card_agent):
        """Those of a card, by its CardAgent."""
        if card_agent not in _of_cards:
            _of_cards[card_agent] = cls()
        return _of_cards[card_agent]

    @staticmethod
    def check(one, port):
        """Raise PyverbsRDMAError if somebody listens at a port that an identifier wants."""
        if port in one.agent.agent.listeners:
            raise PyverbsRDMAError(f"{LISTENS} {port}", errno.EADDRINUSE)

    def bind(self, one, port, random):
        """Give an identifier a port, any that is free if it is 0; the port.

        Raises
        ------
        PyverbsRDMAError
        """
        self.check(one, port)
        port = port or self._free(one.agent.agent.listeners, random)
        if not 0 < port <= PORT_MAX:
            raise PyverbsRDMAError(f"there is no port {port}", errno.EADDRNOTAVAIL)
        if not all(one.reuse and other.reuse for other in self.bound.get(port, ())):
            raise PyverbsRDMAError(f"port {port} is taken", errno.EADDRINUSE)
        self.bound.setdefault(port, set()).add(one)
        return port

    def _free(self, listeners, random):
        span = PORT_MAX - FIRST_PORT
        start = random.randrange(span)
        candidates = (FIRST_PORT + (start + n) % span for n in range(span))
        return next((port for port in candidates if port not in self.bound and port not in listeners), 0)

    def leave(self, one):
        """An identifier that is bound to a port, or to none, ends."""
        having = self.bound.get(one.src_port, set())
        having.discard(one)
        if not having:
            self.bound.pop(one.src_port, None)
