"""Local keys of memory, and the random tags of memory keys."""

from collections.abc import Callable
from random import Random

from weft.hdl.contract import abi

TAGS_APART = 127   # generations of an index before a key tag may recur
NO_TAG = 0         # no key has it


class KeyTags:
    """Generator of tags that differ from the recent tags of an index.

    Parameters
    ----------
    random : random.Random
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._last: dict[int, bytes] = {}     # index -> tags of its recent generations

    def new(self, index: int) -> int:
        """Return a tag for a new generation of an index, other than ``NO_TAG``."""
        last = self._last.get(index, b"")
        draw, bits = self._random.getrandbits, abi.KEY_TAG_BITS
        while (tag := 1 + draw(bits)) >> bits or tag in last:
            pass
        self._last[index] = (last + bytes((tag,)))[-TAGS_APART:]
        return tag


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
