"""What a daemon in simulated time serves."""

import itertools

from .daemon import World


class SimulatedWorld(World):
    """A world whose time goes on when it is told to.

    Attributes
    ----------
    contexts : list of Context
        Of each host.
    now_ns : float
    due_ns : float or None
        When something happens next by itself; None if nothing ever will.
    notices
        Has a function ``before()``, called before a card writes into memory that is looked at.
    """

    now_ns = due_ns = notices = None
    contexts = ()

    def introduce(self):
        """Let the cards know each other, so that it does not matter who asks first."""
        cards = [context.card for context in self.contexts]
        for card, other in itertools.permutations(cards, 2):
            card.engine.neighbours.add(other.ip, other.mac)

    @property
    def working(self):
        """Programs have requests that are not completed."""
        return any(qp.outstanding for context in self.contexts for qp in context.engine.qps)

    def rest(self, number):
        """Let the cards finish what is under way, and draw every random choice from new sequences, by seed and
        ``number``."""
        raise NotImplementedError

    def settle(self):
        """Let drivers do what there is to do, now."""
        raise NotImplementedError

    def advance(self, until_ns, watched):
        """Let time go on to ``until_ns``, or until a driver has something to do and has done it, or a card has written
        into memory of programs on a host of ``watched``; true for the last."""
        raise NotImplementedError
