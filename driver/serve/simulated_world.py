"""Interface of a back end for a daemon in simulated time."""

import itertools

from .daemon import World


class SimulatedWorld(World):
    """Back end whose time advances on request.

    Attributes
    ----------
    contexts : list of Context
        Context of each host.
    now_ns : float
    due_ns : float or None
        Time of the next event; None if there is none.
    notices
        Object with a function ``before()``, called before a card writes into memory that is watched.
    """

    now_ns = due_ns = notices = None
    contexts = ()

    def introduce(self):
        """Add every card to the neighbour tables of the others, so that the order of contacts is irrelevant."""
        cards = [context.card for context in self.contexts]
        for card, other in itertools.permutations(cards, 2):
            card.engine.neighbours.add(other.ip, other.mac)

    @property
    def working(self):
        """True if programs have requests that are not completed."""
        return any(qp.outstanding for context in self.contexts for qp in context.engine.qps)

    def rest(self, number):
        """Let the cards finish all outstanding work, and restart every random sequence from the seed and ``number``."""
        raise NotImplementedError

    def settle(self):
        """Let the drivers do all work that is possible at the current time."""
        raise NotImplementedError

    def advance(self, until_ns, watched):
        """Advance time to ``until_ns``, or until a driver has had work or a card has written into watched memory.

        Memory of programs on the hosts in ``watched`` is watched. Return true if the last case ended the call.
        """
        raise NotImplementedError
