"""The list of Adamap nodes of one QP as the card walks it: fetched, matched, retired. No time.

A node is read from host memory when it is needed, so what the driver linked is all there is.
"""

from collections import deque

from weft.driver.node import decode_body
from weft.hdl import abi


class BrokenList(Exception):
    """A node or a pointer the card cannot trust; ``reason`` is an abi.Reason."""

    def __init__(self, reason):
        super().__init__(reason.name)
        self.reason = reason


class ListNode:
    """A fetched node: its block, holes by slot, and which of them are open."""

    def __init__(self, line, rsn, psns):
        self.line, self.rsn, self.count, self.psns = line, rsn, len(psns), psns
        self.open = (1 << self.count) - 1


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
            node = abi.NODE.unpack(block)
            try:
                holes = decode_body(node.encoding, node.count, node.body)
            except ValueError:
                raise BrokenList(abi.Reason.BAD_NODE) from None
            if (node.qpn, node.generation) != (self.qpn, self.generation):
                raise BrokenList(abi.Reason.BAD_NODE)
            self.nodes.append(ListNode(self._next, node.rsn, [(node.base_psn + h) % (1 << 32) for h in holes]))
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
                if node.psns[slot] == psn & 0xFFFF_FFFF:
                    reason = abi.Reason.OK if node.open >> slot & 1 else abi.Reason.DUPLICATE
                    node.open &= ~(1 << slot)
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
