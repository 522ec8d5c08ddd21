"""Completions and their queue (document: "Completion Queue", ``rdma_poll_cq``)."""

import collections
from dataclasses import dataclass

from ...terms.enums import WCStatus
from .packet import Opcode


@dataclass(frozen=True)
class Completion:
    """Completion. For a WRITE of the peer ``wr_id`` is 0: the peer's value is not known here."""

    wr_id: int
    byte_len: int
    status: WCStatus
    opcode: Opcode


class CompletionQueue:
    """Completions of a QP, oldest first.

    A request of the host reserves its entry when it is posted; a WRITE of the peer gets an entry only if one is left.
    So no completion is ever overwritten.
    """

    def __init__(self, size):
        self.size, self.reserved = size, 0
        self._queue = collections.deque()

    @property
    def space(self):
        """Number of entries that are neither used nor reserved."""
        return self.size - len(self._queue) - self.reserved

    def reserve(self):
        """Reserve an entry."""
        self.reserved += 1

    def push(self, completion, *, reserved=False):
        """Add a completion; the caller guarantees a free or ``reserved`` entry."""
        self.reserved -= reserved
        self._queue.append(completion)

    def poll(self, most):
        """Return and remove up to ``most`` completions."""
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def __len__(self):
        return len(self._queue)
