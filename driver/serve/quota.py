"""Quotas of the daemon's resources, per program and for all programs together.

The daemon holds resources for programs: 300 bytes for a registered page, some hundred for a waiting request, a mapping
for a ring. A request of a program that exceeds the quota is rejected (ENOMEM, with a sentence). Events cannot be
rejected: a program that exceeds its quota of events is dropped.
"""

import enum
import resource

from ..terms.errors import NoRoom


class What(enum.Enum):
    """Kind of resource."""

    PROGRAMS = "open contexts"
    OBJECTS = "objects"
    MEMORY = "bytes of registered memory"
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
    """Return :data:`OF_ALL`, with as many descriptors as this process can open beyond those of the daemon itself."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OF_ALL[What.DESCRIPTORS] if limit == resource.RLIM_INFINITY else max(0, limit - DESCRIPTORS_KEPT)
    return OF_ALL | {What.DESCRIPTORS: min(OF_ALL[What.DESCRIPTORS], most)}


class Account:
    """Resources in use, and their limits.

    Parameters
    ----------
    most : dict of What to int
    whole : Account or None
        Account that contains this one.

    Attributes
    ----------
    has : dict of What to int
    """

    def __init__(self, most, whole=None):
        self.most, self.whole = most, whole
        self.has = dict.fromkeys(What, 0)

    def check(self, amounts):
        """Raise NoRoom if ``amounts``, by :class:`What`, exceed a limit."""
        for what, amount in amounts.items():
            if self.has[what] + amount > self.most[what]:
                who = "a program has" if self.whole else "all programs together have"
                raise NoRoom(f"{amount} {what.value} more than {self.has[what]} are asked for; {who} "
                             f"{self.most[what]} at most")
        if self.whole is not None:
            self.whole.check(amounts)

    def take(self, amounts):
        """Add ``amounts`` to the resources in use.

        Raises
        ------
        NoRoom
        """
        self.check(amounts)
        self._add(amounts, 1)

    def give(self, amounts):
        """Subtract ``amounts`` from the resources in use."""
        self._add(amounts, -1)

    def _add(self, amounts, sign):
        for what, amount in amounts.items():
            self.has[what] += sign * amount
            assert self.has[what] >= 0, what
        if self.whole is not None:
            self.whole._add(amounts, sign)

    def close(self):
        """Return all resources."""
        self.give({what: amount for what, amount in self.has.items() if amount})
