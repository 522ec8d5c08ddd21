"""What a daemon in simulated time serves."""

from .daemon import World


class SimulatedWorld(World):
    """A world whose time goes on when it is told to.

    Attributes
    ----------
    now_ns : float
    due_ns : float or None
        When something happens next by itself; None if nothing ever will.
    notices
        Has a function ``before()``, called before a card writes into memory that is looked at.
    """

    now_ns = due_ns = notices = None

    def settle(self):
        """Let drivers do what there is to do, now."""
        raise NotImplementedError

    def advance(self, until_ns, watched):
        """Let time go on to ``until_ns``, or until a driver has something to do and has done it, or a card has written
        into memory of programs on a host of ``watched``; true for the last."""
        raise NotImplementedError
