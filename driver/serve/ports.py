"""Ports of a card, and the programs that use them."""

import errno
import weakref

from ..connection.agent import PORT_MAX
from ..terms.errors import PyverbsRDMAError

FIRST_PORT = 1 << 15       # first of the ports that are assigned automatically
LISTENS = "another listener has port"
_of_cards = weakref.WeakKeyDictionary()


class Ports:
    """Ports of a card in one port space, and the identifiers that are bound to them.

    Attributes
    ----------
    bound : dict of int to set of ConnectionId
    """

    def __init__(self):
        self.bound = {}

    @classmethod
    def of(cls, card_agent, space="TCP"):
        """Return the ports of a card, given its CardAgent, in a port space."""
        return _of_cards.setdefault(card_agent, {}).setdefault(space, cls())

    def others(self, one, port):
        """Return the identifiers at a port whose addresses can conflict with those of ``one``."""
        return [other for other in self.bound.get(port, ()) if other is not one and other.only_ipv6 == one.only_ipv6]

    def check(self, one, port):
        """Raise PyverbsRDMAError if the port that an identifier requests has a listener."""
        if one.only_ipv6:
            taken = any(other.listener for other in self.others(one, port))
        else:
            taken = port in one.listeners
        if taken:
            raise PyverbsRDMAError(f"{LISTENS} {port}", errno.EADDRINUSE)

    def bind(self, one, port, random):
        """Bind an identifier to a port, or to any free port if ``port`` is 0, and return the port.

        Raises
        ------
        PyverbsRDMAError
            If the port has a listener, is in use without permission to share it, or is not a valid port.
        """
        self.check(one, port)
        port = port or self._free(one.listeners, random)
        if not 0 < port <= PORT_MAX:
            raise PyverbsRDMAError(f"there is no port {port}", errno.EADDRNOTAVAIL)
        if not all(one.reuse and other.reuse for other in self.others(one, port)):
            raise PyverbsRDMAError(f"port {port} is taken", errno.EADDRINUSE)
        self.bound.setdefault(port, set()).add(one)
        return port

    def _free(self, listeners, random):
        span = PORT_MAX - FIRST_PORT
        start = random.randrange(span)
        candidates = (FIRST_PORT + (start + n) % span for n in range(span))
        return next((port for port in candidates if port not in self.bound and port not in listeners), 0)

    def leave(self, one):
        """Release the port of an identifier, if it is bound to one."""
        having = self.bound.get(one.src_port, set())
        having.discard(one)
        if not having:
            self.bound.pop(one.src_port, None)
