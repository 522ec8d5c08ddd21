"""Keys by which programs name their own memory."""

from weft.hdl.contract import abi

from .key_tags import NO_TAG, KeyTags


class LocalKeys(dict):
    """The key by which the card knows the region with an ``lkey``; for other numbers, one that it has for nothing.

    The card has one key for a region, which peers get as ``rkey``. Were it the ``lkey`` too, whoever saw the one could
    use the other.

    Parameters
    ----------
    random : random.Random
    """

    def __init__(self, random):
        super().__init__()
        self._tags = KeyTags(random)

    def new(self, index, card_key):
        """An ``lkey`` for the region with an index, unlike the card's key for it."""
        while (lkey := abi.make_key(index, self._tags.new(index))) == card_key:
            pass
        self[lkey] = card_key
        return lkey

    def __missing__(self, lkey):
        return abi.make_key(lkey >> abi.KEY_TAG_BITS, NO_TAG)
