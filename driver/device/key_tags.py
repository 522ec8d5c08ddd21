"""Random tags of memory keys."""

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
