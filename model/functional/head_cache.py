"""Head cache without time: the functional model of ``hdl/adamap/cache/head_cache.py``."""

import enum
from dataclasses import dataclass

from weft.hdl.contract import abi

from .node import encode_body, open_holes

_RSN24 = 1 << 24


class CachedNode:
    """Node that the card has read, with the state of its holes.

    Parameters
    ----------
    node : Node
    line : int
        Block of the node.

    Attributes
    ----------
    open : int
        Open holes, as in a RETIRE report. LIST and RUNS: one bit per hole. BITMAP: the rest of the body, so that a PSN
        without a bit was filled or never missing; the slot does not matter.
    left : int
        Number of open holes, counted down from ``count``.
    head, touched : bool
        The node is the first of its list; one of its holes was filled.
    """

    def __init__(self, node, line):
        self.line, self.qpn, self.generation = line, node.qpn, node.generation
        self.base_psn, self.rsn, self.encoding, self.holes = node.base_psn, node.rsn, node.encoding, node.holes
        self.count = self.left = len(node.holes)
        self.fetched_body = encode_body(node.encoding, node.holes)
        self.open = self.fetched_body if node.encoding == abi.Encoding.BITMAP else (1 << self.count) - 1
        self.head = self.touched = False

    @property
    def next_rsn(self):
        """RSN of the first hole of the next node of the list."""
        return (self.rsn + self.count) % (1 << 32)

    @property
    def body(self):
        """Body as in the cache: filled holes are removed from a BITMAP."""
        return self.open if self.encoding == abi.Encoding.BITMAP else self.fetched_body

    @property
    def open_psns(self):
        """PSNs of the open holes."""
        return [(self.base_psn + hole) % (1 << 32) for hole in open_holes(self.encoding, self.holes, self.open)]

    def slot(self, rsn):
        """Return the slot of the hole with a 24-bit RSN, or None."""
        slot = (rsn - self.rsn) % _RSN24
        return slot if slot < self.count else None

    def bit(self, slot, psn):
        """Return the bit of ``open`` for a hole, or None if ``slot`` and PSN belong to different holes."""
        offset = (psn - self.base_psn) % (1 << 32)
        if self.encoding == abi.Encoding.BITMAP:
            return offset if offset < abi.NODE_BODY_BITS else None
        return slot if self.holes[slot] == offset else None

    def mark(self, bit):
        """Mark a hole as filled."""
        self.open &= ~(1 << bit)
        self.left -= 1
        self.touched = True


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
