"""Quotas of the daemon's resources, per program and for all programs together.

The daemon holds resources for programs: entries for a registered page, some hundred bytes for a waiting request, a
mapping for a ring. Registered memory counts as pinned memory does: a page once, in however many regions it is.
Overlapping regions take more entries of the card's tables, whose sizes limit them. A request of a program that exceeds
the quota is rejected (ENOMEM, with a sentence). Events cannot be rejected: a program that exceeds its quota of events
is dropped.
"""

import enum
import resource

from ..terms.errors import OutOfResources


class ResourceKind(enum.Enum):
    """Kind of resource."""

    __hash__ = object.__hash__      # that of Enum is slow

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

OF_ONE = {ResourceKind.PROGRAMS: 1, ResourceKind.OBJECTS: 1 << 16, ResourceKind.MEMORY: 4 << 30,
          ResourceKind.RINGS: 1 << 30, ResourceKind.REQUESTS: 1 << 21,
          ResourceKind.MAPPINGS: 1 << 14, ResourceKind.DESCRIPTORS: 1 << 10, ResourceKind.EVENTS: 1 << 13}
OF_ALL = {ResourceKind.PROGRAMS: 1 << 12, ResourceKind.OBJECTS: 1 << 18, ResourceKind.MEMORY: 16 << 30,
          ResourceKind.RINGS: 4 << 30,
          ResourceKind.REQUESTS: 1 << 22, ResourceKind.MAPPINGS: 1 << 15, ResourceKind.DESCRIPTORS: 1 << 20,
          ResourceKind.EVENTS: 1 << 17}


def of_this_process():
    """Return :data:`OF_ALL`, with as many descriptors as this process can open beyond those of the daemon itself."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OF_ALL[ResourceKind.DESCRIPTORS] if limit == resource.RLIM_INFINITY else max(0, limit - DESCRIPTORS_KEPT)
    return OF_ALL | {ResourceKind.DESCRIPTORS: min(OF_ALL[ResourceKind.DESCRIPTORS], most)}


class Account:
    """Resources in use, and their limits.

    Parameters
    ----------
    most : dict of ResourceKind to int
    whole : Account or None
        Account that contains this one.

    Attributes
    ----------
    has : dict of ResourceKind to int
    """

    def __init__(self, most, whole=None):
        self.most, self.whole = most, whole
        self._all = (self,) if whole is None else (self, *whole._all)
        self.has = dict.fromkeys(ResourceKind, 0)

    def check(self, amounts):
        """Raise OutOfResources if ``amounts``, by :class:`ResourceKind`, exceed a limit."""
        for account in self._all:
            has, most = account.has, account.most
            for kind, amount in amounts.items():
                if has[kind] + amount > most[kind]:
                    owner = "a program has" if account.whole else "all programs together have"
                    raise OutOfResources(f"{amount} {kind.value} more than {has[kind]} are asked for; {owner} "
                                         f"{most[kind]} at most")

    def take(self, amounts):
        """Add ``amounts`` to the resources in use.

        Raises
        ------
        OutOfResources
        """
        self.check(amounts)
        self._add(amounts, 1)

    def release(self, amounts):
        """Subtract ``amounts`` from the resources in use."""
        self._add(amounts, -1)

    def _add(self, amounts, sign):
        for account in self._all:
            has = account.has
            for kind, amount in amounts.items():
                has[kind] += sign * amount
                assert has[kind] >= 0, kind

    def close(self):
        """Return all resources."""
        self.release({kind: amount for kind, amount in self.has.items() if amount})
