"""The random part of memory keys."""

import collections

from weft.hdl.contract import abi

TAGS_APART = 127   # lives of an index before a key tag may come again
NO_TAG = 0         # no key has it


class KeyTags:
    """Tags that none of the last lives of an index had.

    Parameters
    ----------
    random : random.Random
    """

    def __init__(self, random):
        self._random = random
        self._last = {}     # index -> tags of its last lives

    def new(self, index):
        """A tag for a new life of an index, not ``NO_TAG``."""
        last = self._last.setdefault(index, collections.deque(maxlen=TAGS_APART))
        while (tag := self._random.randrange(1, 1 << abi.KEY_TAG_BITS)) in last:
            pass
        last.append(tag)
        return tag
