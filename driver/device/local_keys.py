"""Local keys: keys of programs for their memory."""

from random import Random

from weft.hdl.contract import abi

from .key_tags import NO_TAG, KeyTags


class LocalKeys(dict[int, int]):
    """Map from ``lkey`` to the card's key of the region. Other numbers map to an invalid key.

    The card has one key for a region, which peers get as ``rkey``. If it were the ``lkey`` too, a program that knows
    one could use the other.

    Parameters
    ----------
    random : random.Random
    """

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._tags = KeyTags(random)

    def new(self, index: int, card_key: int) -> int:
        """Return a new ``lkey`` for the region with this index, different from the card's key for it."""
        while (lkey := abi.make_key(index, self._tags.new(index))) == card_key:
            pass
        self[lkey] = card_key
        return lkey

    def __missing__(self, lkey: int) -> int:
        return abi.make_key(lkey >> abi.KEY_TAG_BITS, NO_TAG)
