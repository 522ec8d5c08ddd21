"""The list of Adamap nodes of one QP as the card walks it: fetched, matched, retired. No time.

A node is read from host memory when it is needed, so what the driver linked is all there is.
"""

from weft.hdl.contract import abi

from .head_cache import CachedNode
from .matcher import Matcher
from .node import Node, damage


class BrokenList(Exception):
    """A node or a pointer the card cannot trust; ``reason`` is an abi.Reason."""

    def __init__(self, reason):
        super().__init__(reason.name)
        self.reason = reason


class NodeList(Matcher):
    """A matcher that reads its list.

    Parameters
    ----------
    qpn, generation : int
    read_line : callable(line)
        64 bytes of host memory.
    in_extent : callable(line)
        Whether the driver announced that block.
    """

    def __init__(self, qpn, generation, read_line, in_extent):
        super().__init__(qpn, generation)
        self._next, self._read, self._in_extent = None, read_line, in_extent
        self.linked = 0
        self.fetched = 0

    def link(self, nodes, line):
        """So many more nodes are linked, the first one in block ``line``, or in none that is known (None)."""
        if self.fetched == self.linked:
            self._next = line
        self.linked += nodes

    def fetch(self):
        """Read every node that is linked.

        Raises
        ------
        BrokenList
        """
        while self.fetched != self.linked:
            self.fetch_next()

    def fetch_next(self):
        """Read the next node; the rest of its block.

        Raises
        ------
        BrokenList
        """
        if self._next is None or not self._in_extent(self._next):
            raise BrokenList(abi.Reason.BAD_POINTER)
        block = self._block()
        try:
            node = Node.unpack(block)
        except ValueError:
            raise BrokenList(abi.Reason.BAD_NODE) from None
        follows = not self.nodes or node.rsn == self.nodes[-1].next_rsn
        if damage(block) or (node.qpn, node.generation) != (self.qpn, self.generation) or not follows:
            raise BrokenList(abi.Reason.BAD_NODE)
        found = abi.NODE.unpack(block)
        if not found.next_line and self.fetched + 1 != self.linked:
            raise BrokenList(abi.Reason.BAD_POINTER)
        self.add(CachedNode(node, self._next))
        self._next = found.next_line
        self.fetched += 1
        return found

    def _block(self):
        return self._read(self._next)

    def match(self, psn, rsn, slack, depth=None):
        """As :meth:`Matcher.match`, after a fetch."""
        self.fetch()
        return super().match(psn, rsn, slack, depth)

    def probe(self, rsn):
        """As :meth:`Matcher.probe`, after a fetch."""
        self.fetch()
        super().probe(rsn)

    def not_matched(self, rsn, slack):
        """As :meth:`Matcher.not_matched`, after a fetch."""
        self.fetch()
        super().not_matched(rsn, slack)
