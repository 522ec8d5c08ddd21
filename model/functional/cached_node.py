"""Node that the card has read: an entry of its head cache, without time."""

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
