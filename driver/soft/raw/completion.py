"""Completions and the queue they are polled from (document: "Completion Queue", ``rdma_poll_cq``)."""

import collections
from dataclasses import dataclass

from ...terms.enums import WCStatus
from .packet import Opcode


@dataclass(frozen=True)
class Completion:
    """A completion. That of a WRITE of the peer has the ``wr_id`` 0: the peer's own is not known here."""

    wr_id: int
    byte_len: int
    status: WCStatus
    opcode: Opcode


class CompletionQueue:
    """The completions of a QP, oldest first.

    The host's own requests have their places reserved when they are posted; a WRITE of the peer takes place only if
    there is one left. So nothing is ever overwritten.
    """

    def __init__(self, size):
        self.size, self.reserved = size, 0
        self._queue = collections.deque()

    @property
    def room(self):
        """Places that are neither taken nor reserved."""
        return self.size - len(self._queue) - self.reserved

    def reserve(self):
        """Keep a place."""
        self.reserved += 1

    def push(self, completion, *, reserved=False):
        """Add one; the caller made sure that there is a place."""
        self.reserved -= reserved
        self._queue.append(completion)

    def poll(self, most):
        """Up to ``most`` completions, taken out."""
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def __len__(self):
        return len(self._queue)
