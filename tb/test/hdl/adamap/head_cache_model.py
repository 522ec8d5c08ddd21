"""Head cache without time: the functional model of ``hdl/adamap/cache/head_cache.py``."""

import enum
from dataclasses import dataclass

from weft.model.functional.cached_node import CachedNode


class State(enum.Enum):
    """State of an entry."""

    FREE = 0
    RESERVED = 1
    VALID = 2


@dataclass
class Entry:
    """Entry for a node. A removed node remains readable until the entry is reserved for the next one."""

    state: State = State.FREE
    node: CachedNode | None = None


@dataclass(frozen=True)
class Hit:
    """Result of a lookup: the entry of the node, the slot, and whether the node follows the list's head."""

    index: int
    slot: int
    next: bool


class HeadCache:
    """Pool of entries for the first nodes of all lists.

    One cycle of the card corresponds to a sequence of calls: first all queries, which do not see the changes of their
    cycle; then the changes, in the order ``reserve``, ``mark``, ``retire``, ``flush``, ``release``, ``fill``. A node
    that is filled in the cycle in which the only other node of its list retires thus becomes the head.

    Parameters
    ----------
    entries : int
    """

    def __init__(self, entries):
        self.entries = [Entry() for _ in range(entries)]

    def nodes(self, qpn, generation=None):
        """Return the cached nodes of a list by entry, of any generation if none is given."""
        return {index: entry.node for index, entry in enumerate(self.entries) if entry.state is State.VALID
                and entry.node.qpn == qpn and generation in (None, entry.node.generation)}

    # ------------------------------------------------------------------------------------------------- queries

    @property
    def free(self):
        """Entries that are not in use."""
        return [index for index, entry in enumerate(self.entries) if entry.state is State.FREE]

    @property
    def idle(self):
        """True if no entry is reserved."""
        return all(entry.state is not State.RESERVED for entry in self.entries)

    @property
    def ripe(self):
        """Entries of heads without open holes; the card shows the first of them."""
        return [index for index, entry in enumerate(self.entries)
                if entry.state is State.VALID and entry.node.head and not entry.node.left]

    @property
    def candidate(self):
        """Eviction candidates: untouched last nodes of lists that are not heads; the card shows the first of them."""
        return [index for index, entry in enumerate(self.entries) if entry.state is State.VALID
                and not entry.node.head and not entry.node.touched and self.last(index)]

    def head(self, qpn, generation):
        """Return the entry of a list's first node, or None."""
        return next((index for index, node in self.nodes(qpn, generation).items() if node.head), None)

    def lookup(self, qpn, generation, rsn):
        """Return the node that holds a 24-bit RSN, as a Hit, or None."""
        head = self.head(qpn, generation)
        for index, node in self.nodes(qpn, generation).items():
            if (slot := node.slot(rsn)) is not None:
                return Hit(index, slot, head is not None and node.rsn == self.entries[head].node.next_rsn)
        return None

    def follows(self, node):
        """Return whether a node may be filled in: it continues the cached part of its list, or is its first node."""
        own = self.nodes(node.qpn).values()
        return not own or (any(n.next_rsn == node.rsn for n in own) and all(n.rsn != node.rsn for n in own))

    def after(self, index):
        """Return the entry of the next node of the list, or None."""
        node = self.entries[index].node
        return next((k for k, other in self.nodes(node.qpn).items() if other.rsn == node.next_rsn), None)

    def last(self, index):
        """Return whether a cached node is the last cached one of its list."""
        return self.after(index) is None

    # ------------------------------------------------------------------------------------------------- changes

    def reserve(self, index):
        """Reserve a free entry."""
        self.entries[index] = Entry(State.RESERVED)

    def mark(self, index, bit):
        """Mark a hole of a node as filled, even if the node has just been removed."""
        self.entries[index].node.mark(bit)

    def retire(self, index):
        """Remove a head; the next node becomes the head."""
        self.entries[index].state, after = State.FREE, self.after(index)
        if after is not None:
            self.entries[after].node.head = True

    def flush(self, qpn):
        """Remove all nodes of a list. Entries that are reserved for it stay reserved."""
        for index in self.nodes(qpn):
            self.entries[index].state = State.FREE

    def release(self, index):
        """Free an entry that is reserved, or that holds the last node of a list."""
        self.entries[index].state = State.FREE

    def fill(self, index, node, line):
        """Store a node in a reserved entry."""
        cached = CachedNode(node, line)
        cached.head = not self.nodes(node.qpn)
        self.entries[index] = Entry(State.VALID, cached)
