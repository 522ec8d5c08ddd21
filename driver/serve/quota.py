"""What programs may have of the daemon's: each of them, and all together.

The daemon pays for what programs ask for: 300 bytes for a page that is shared, some hundred for a request that waits,
a mapping for a ring. A program that wants more than its part is refused (ENOMEM, with a sentence); one that makes the
daemon keep more than its part of events, which cannot be refused, is dropped.
"""

import enum
import resource

from ..terms.errors import NoRoom


class What(enum.Enum):
    """What is counted."""

    PROGRAMS = "open contexts"
    OBJECTS = "objects"
    MEMORY = "bytes of shared memory"
    RINGS = "bytes of rings"
    REQUESTS = "slots for work requests"
    MAPPINGS = "mappings"
    DESCRIPTORS = "descriptors"
    EVENTS = "events that are not read"


DESCRIPTORS_KEPT = 64       # for the daemon itself
DESCRIPTORS_OF_PROGRAM = 4  # connection, two doorbells, asynchronous events

OF_ONE = {What.PROGRAMS: 1, What.OBJECTS: 1 << 16, What.MEMORY: 4 << 30, What.RINGS: 1 << 30, What.REQUESTS: 1 << 21,
          What.MAPPINGS: 1 << 14, What.DESCRIPTORS: 1 << 10, What.EVENTS: 1 << 13}
OF_ALL = {What.PROGRAMS: 1 << 12, What.OBJECTS: 1 << 18, What.MEMORY: 16 << 30, What.RINGS: 4 << 30,
          What.REQUESTS: 1 << 22, What.MAPPINGS: 1 << 15, What.DESCRIPTORS: 1 << 20, What.EVENTS: 1 << 17}


def of_this_process():
    """:data:`OF_ALL` with as many descriptors as this process can have, less those that it needs itself."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OF_ALL[What.DESCRIPTORS] if limit == resource.RLIM_INFINITY else max(0, limit - DESCRIPTORS_KEPT)
    return OF_ALL | {What.DESCRIPTORS: min(OF_ALL[What.DESCRIPTORS], most)}


class Account:
    """What somebody has, and may have at most.

    Parameters
    ----------
    most : dict of What to int
    whole : Account or None
        That this one is a part of.

    Attributes
    ----------
    has : dict of What to int
    """

    def __init__(self, most, whole=None):
        self.most, self.whole = most, whole
        self.has = dict.fromkeys(What, 0)

    def check(self, amounts):
        """Raise NoRoom unless so much more is possible; ``amounts`` by :class:`What`."""
        for what, amount in amounts.items():
            if self.has[what] + amount > self.most[what]:
                who = "a program has" if self.whole else "all programs together have"
                raise NoRoom(f"{amount} {what.value} more than {self.has[what]} are asked for; {who} "
                             f"{self.most[what]} at most")
        if self.whole is not None:
            self.whole.check(amounts)

    def take(self, amounts):
        """Have so much more.

        Raises
        ------
        NoRoom
        """
        self.check(amounts)
        self._add(amounts, 1)

    def give(self, amounts):
        """Have so much less."""
        self._add(amounts, -1)

    def _add(self, amounts, sign):
        for what, amount in amounts.items():
            self.has[what] += sign * amount
            assert self.has[what] >= 0, what
        if self.whole is not None:
            self.whole._add(amounts, sign)

    def close(self):
        """Give all back."""
        self.give({what: amount for what, amount in self.has.items() if amount})
