"""Local keys: keys of programs for their memory."""

from collections.abc import Callable
from random import Random

from weft.hdl.contract import abi

from .key_tags import NO_TAG, KeyTags


class LocalKeys(dict[int, int]):
    """Map from ``lkey`` to the card's key of the region. Other numbers map to an invalid key.

    The card has one key for a region, which peers get as ``rkey``. If it were the ``lkey`` too, a program that knows
    one could use the other.

    A lookup of a deferred key registers its region: a region whose key is never used needs no command of the card.

    Parameters
    ----------
    random : random.Random
    """

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._tags = KeyTags(random)
        self._deferred: dict[int, Callable[[], bool]] = {}

    def new(self, index: int, card_key: int) -> int:
        """Return a new ``lkey`` for the region with this index, different from the card's key for it."""
        while (lkey := abi.make_key(index, self._tags.new(index))) == card_key:
            pass
        self[lkey] = card_key
        return lkey

    def defer(self, lkey: int, register: Callable[[], bool]) -> None:
        """Let the first lookup of an ``lkey`` call ``register()``; if that returns false, the key is invalid."""
        card_key = self.pop(lkey)

        def registered() -> bool:
            self[lkey] = card_key
            if not register():
                del self[lkey]
            return lkey in self

        self._deferred[lkey] = registered

    def forget(self, lkey: int) -> None:
        """Make an ``lkey`` invalid."""
        self.pop(lkey, None)
        self._deferred.pop(lkey, None)

    def __missing__(self, lkey: int) -> int:
        registered = self._deferred.pop(lkey, None)
        if registered is not None and registered():
            return self[lkey]
        return abi.make_key(lkey >> abi.KEY_TAG_BITS, NO_TAG)
