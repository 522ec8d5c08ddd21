"""Interface of a back end for a daemon in simulated time."""

import itertools
from collections.abc import Callable, Collection
from typing import Protocol

from ..verbs.context import Context
from .daemon import ServeBackend


class Notices(Protocol):
    """Object with a function ``before()``, called before a card writes into memory that is watched."""

    before: Callable[[], object]


class SimulatedBackend(ServeBackend):
    """Back end whose time advances on request.

    Attributes
    ----------
    contexts
        Context of each host.
    """

    contexts: list[Context]
    notices: Notices

    @property
    def now_ns(self) -> float:
        raise NotImplementedError

    @property
    def due_ns(self) -> float | None:
        """Time of the next event; None if there is none."""
        raise NotImplementedError

    def introduce(self) -> None:
        """Add every card to the neighbour tables of the others, so that the order of contacts is irrelevant."""
        cards = [context.card for context in self.contexts]
        for card, other in itertools.permutations(cards, 2):
            card.engine.neighbours.add(other.ip, other.mac)

    @property
    def working(self) -> bool:
        """True if programs have requests that are not completed."""
        return any(context.engine.outstanding for context in self.contexts)

    def rest(self, number: int) -> None:
        """Let the cards finish all outstanding work, and restart every random sequence from the seed and ``number``."""
        raise NotImplementedError

    def settle(self) -> None:
        """Let the drivers do all work that is possible at the current time."""
        raise NotImplementedError

    def advance(self, until_ns: float, watched: Collection[str]) -> bool:
        """Advance time to ``until_ns``, or until a driver has had work or a card has written into watched memory.

        Memory of programs on the hosts in ``watched`` is watched. Return true if the last case ended the call.
        """
        raise NotImplementedError
