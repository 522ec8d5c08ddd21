"""The head cache, without time: the oracle of ``hdl/adamap/cache/head_cache.py``."""

import enum
from dataclasses import dataclass

from weft.hdl.contract import abi

from .node import encode_body, open_holes

_RSN24 = 1 << 24


class CachedNode:
    """A node the card has read, and what became of it.

    Parameters
    ----------
    node : Node
    line : int
        Its block.

    Attributes
    ----------
    open : int
        Holes that are open, as a RETIRE report has them: a bit per hole of LIST and RUNS; of a BITMAP what is left of
        the body, so that a PSN that is not open was filled or never missing, and the slot does not matter.
    left : int
        How many they are, as counted down from ``count``.
    head, touched : bool
        It is the first of its list; a hole was filled.
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
        """RSN with which the next node of the list begins."""
        return (self.rsn + self.count) % (1 << 32)

    @property
    def body(self):
        """The body as the cache keeps it: a BITMAP loses the holes that are filled."""
        return self.open if self.encoding == abi.Encoding.BITMAP else self.fetched_body

    @property
    def open_psns(self):
        """PSNs of the open holes."""
        return [(self.base_psn + hole) % (1 << 32) for hole in open_holes(self.encoding, self.holes, self.open)]

    def slot(self, rsn):
        """Which of its holes has a 24-bit RSN, or None."""
        slot = (rsn - self.rsn) % _RSN24
        return slot if slot < self.count else None

    def bit(self, slot, psn):
        """Bit of ``open`` for the hole that ``slot`` and PSN name, or None if they do not name the same one."""
        offset = (psn - self.base_psn) % (1 << 32)
        if self.encoding == abi.Encoding.BITMAP:
            return offset if offset < abi.NODE_BODY_BITS else None
        return slot if self.holes[slot] == offset else None

    def mark(self, bit):
        """The hole is filled."""
        self.open &= ~(1 << bit)
        self.left -= 1
        self.touched = True


class State(enum.Enum):
    """Of an entry."""

    FREE = 0
    RESERVED = 1
    VALID = 2


@dataclass
class Entry:
    """A place for a node. A node that left is still there to be read, until its entry is reserved for the next one."""

    state: State = State.FREE
    node: CachedNode | None = None


@dataclass(frozen=True)
class Hit:
    """A lookup found a node: its entry, the hole, and whether the node follows the list's head."""

    index: int
    slot: int
    next: bool


class HeadCache:
    """A pool of entries for the first nodes of all lists.

    What happens in one cycle of the card is a row of calls here: first all that shows something, for it knows
    nothing of the changes of its cycle; then the changes, in the order ``reserve``, ``mark``, ``retire``, ``flush``,
    ``release``, ``fill``. So a node that is filled in while the only other one of its list retires is the head.

    Parameters
    ----------
    entries : int
    """

    def __init__(self, entries):
        self.entries = [Entry() for _ in range(entries)]

    def nodes(self, qpn, generation=None):
        """The cached nodes of a list by entry, of any generation if none is named."""
        return {index: entry.node for index, entry in enumerate(self.entries) if entry.state is State.VALID
                and entry.node.qpn == qpn and generation in (None, entry.node.generation)}

    # -------------------------------------------------------------------------------------------- what is shown

    @property
    def free(self):
        """The entries nobody uses."""
        return [index for index, entry in enumerate(self.entries) if entry.state is State.FREE]

    @property
    def idle(self):
        """No entry is reserved."""
        return all(entry.state is not State.RESERVED for entry in self.entries)

    @property
    def ripe(self):
        """Entries of heads without open holes; the first of them is shown."""
        return [index for index, entry in enumerate(self.entries)
                if entry.state is State.VALID and entry.node.head and not entry.node.left]

    @property
    def spare(self):
        """Entries of untouched nodes with which a list ends that does not begin with them; the first one is shown."""
        return [index for index, entry in enumerate(self.entries) if entry.state is State.VALID
                and not entry.node.head and not entry.node.touched and self.last(index)]

    def head(self, qpn, generation):
        """Entry of a list's first node, or None."""
        return next((index for index, node in self.nodes(qpn, generation).items() if node.head), None)

    def lookup(self, qpn, generation, rsn):
        """The node that holds a 24-bit RSN, as a Hit, or None."""
        head = self.head(qpn, generation)
        for index, node in self.nodes(qpn, generation).items():
            if (slot := node.slot(rsn)) is not None:
                return Hit(index, slot, head is not None and node.rsn == self.entries[head].node.next_rsn)
        return None

    def follows(self, node):
        """Whether a node may be filled in: it goes on where its list ends here, or is the first."""
        own = self.nodes(node.qpn).values()
        return not own or (any(n.next_rsn == node.rsn for n in own) and all(n.rsn != node.rsn for n in own))

    def behind(self, index):
        """Entry of the node behind one, or None."""
        node = self.entries[index].node
        return next((k for k, other in self.nodes(node.qpn).items() if other.rsn == node.next_rsn), None)

    def last(self, index):
        """Whether a node of the cache is the last of its list there."""
        return self.behind(index) is None

    # ------------------------------------------------------------------------------------------ what is changed

    def reserve(self, index):
        """Take a free entry."""
        self.entries[index] = Entry(State.RESERVED)

    def mark(self, index, bit):
        """A hole of a node is filled; of one that has just left, too."""
        self.entries[index].node.mark(bit)

    def retire(self, index):
        """A head leaves; the node behind it is the head now."""
        self.entries[index].state, behind = State.FREE, self.behind(index)
        if behind is not None:
            self.entries[behind].node.head = True

    def flush(self, qpn):
        """All nodes of a list leave. Entries that are reserved for it stay so."""
        for index in self.nodes(qpn):
            self.entries[index].state = State.FREE

    def release(self, index):
        """Give back an entry that is reserved, or that holds the last node of a list."""
        self.entries[index].state = State.FREE

    def fill(self, index, node, line):
        """A node arrived for a reserved entry."""
        cached = CachedNode(node, line)
        cached.head = not self.nodes(node.qpn)
        self.entries[index] = Entry(State.VALID, cached)
