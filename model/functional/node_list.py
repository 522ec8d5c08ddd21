"""The list of Adamap nodes of one QP as the card walks it: fetched, matched, retired. No time.

A node is read from host memory when it is needed, so what the driver linked is all there is.
"""

from collections import deque

from weft.hdl import abi

from .node import damage, decode_body, open_holes


class BrokenList(Exception):
    """A node or a pointer the card cannot trust; ``reason`` is an abi.Reason."""

    def __init__(self, reason):
        super().__init__(reason.name)
        self.reason = reason


class ListNode:
    """A fetched node: its block, and which of its holes are open, as the RETIRE report says it.

    Of a BITMAP the body is all there is: a PSN that is not open was filled or never missing, and the slot does not
    matter.
    """

    def __init__(self, line, node):
        self.line, self.rsn, self.count, self.base = line, node.rsn, node.count, node.base_psn
        self.holes = decode_body(node.encoding, node.count, node.body)
        self.encoding = node.encoding
        self.open = node.body if node.encoding == abi.Encoding.BITMAP else (1 << self.count) - 1

    @property
    def left(self):
        """PSNs still open."""
        return [(self.base + hole) % (1 << 32) for hole in open_holes(self.encoding, self.holes, self.open)]

    def fill(self, slot, psn):
        """A retransmission lies in this node: an abi.Reason."""
        offset = (psn - self.base) % (1 << 32)
        if self.encoding == abi.Encoding.BITMAP:
            bit, known = offset, offset < abi.NODE_BODY_BITS
        else:
            bit, known = slot, self.holes[slot] == offset
        if not known:
            return abi.Reason.NOT_IN_NODE
        if not self.open >> bit & 1:
            return abi.Reason.DUPLICATE
        self.open &= ~(1 << bit)
        return abi.Reason.OK


def _signed24(value):
    return (value + (1 << 23)) % (1 << 24) - (1 << 23)


class NodeList:
    """List and matching of one QP.

    Parameters
    ----------
    qpn, generation : int
    line : int
        First block.
    read_line : callable(line)
        64 bytes of host memory.
    in_extent : callable(line)
        Whether the driver announced that block.
    """

    def __init__(self, qpn, generation, line, read_line, in_extent):
        self.qpn, self.generation = qpn, generation
        self._next, self._read, self._in_extent = line, read_line, in_extent
        self.linked = 0
        self.fetched = 0
        self.nodes = deque()
        self.retired = deque()  # (ListNode) to be reported

    def fetch(self):
        """Read every node that is linked.

        Raises
        ------
        BrokenList
        """
        while self.fetched != self.linked:
            if not self._in_extent(self._next):
                raise BrokenList(abi.Reason.BAD_POINTER)
            block = self._read(self._next)
            if damage(block):
                raise BrokenList(abi.Reason.BAD_NODE)
            node = abi.NODE.unpack(block)
            try:
                fetched = ListNode(self._next, node)
            except ValueError:
                raise BrokenList(abi.Reason.BAD_NODE) from None
            if (node.qpn, node.generation) != (self.qpn, self.generation):
                raise BrokenList(abi.Reason.BAD_NODE)
            self.nodes.append(fetched)
            self._next = node.next_line
            self.fetched += 1

    def match(self, psn, rsn, slack):
        """A retransmission arrived: an abi.Reason."""
        self.fetch()
        behind = not self.nodes or _signed24(rsn - self.nodes[0].rsn) < 0
        reason = abi.Reason.STALE_RSN if behind else abi.Reason.NOT_IN_NODE
        for node in self.nodes:
            slot = _signed24(rsn - node.rsn)
            if 0 <= slot < node.count:
                reason = node.fill(slot, psn)
                break
        while self.nodes and (
            not self.nodes[0].open or _signed24(rsn - (self.nodes[0].rsn + self.nodes[0].count - 1)) >= slack
        ):
            self._retire()
        return reason

    def probe(self, rsn):
        """Every older RSN was retransmitted."""
        self.fetch()
        while self.nodes and (
            not self.nodes[0].open or _signed24(rsn - (self.nodes[0].rsn + self.nodes[0].count)) >= 0
        ):
            self._retire()

    def _retire(self):
        node = self.nodes.popleft()
        self.retired.append(node)
