"""Random tags of memory keys."""

import collections
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
        self._last: dict[int, collections.deque[int]] = {}     # index -> tags of its recent generations

    def new(self, index: int) -> int:
        """Return a tag for a new generation of an index, other than ``NO_TAG``."""
        last = self._last.get(index)
        if last is None:
            last = self._last[index] = collections.deque(maxlen=TAGS_APART)
        while (tag := self._random.randrange(1, 1 << abi.KEY_TAG_BITS)) in last:
            pass
        last.append(tag)
        return tag
