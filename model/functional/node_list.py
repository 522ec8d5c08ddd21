"""List of Adamap nodes of one QP as the card processes it: fetch, match, retire. No time.

A node is read from host memory only when it is needed.
"""

from weft.driver.device.attached import MemoryFault
from weft.hdl.contract import abi

from .cached_node import CachedNode
from .matcher import Matcher
from .node import Node, damage


class BrokenList(Exception):
    """Node or pointer that fails a check of the card; ``reason`` is an abi.Reason."""

    def __init__(self, reason):
        super().__init__(reason.name)
        self.reason = reason


class NodeList(Matcher):
    """Matcher that reads its list from host memory.

    Parameters
    ----------
    qpn, generation : int
    read_line : callable(line)
        Returns 64 bytes of host memory.
    in_extent : callable(line)
        Returns whether the block is within an extent of the driver.
    """

    def __init__(self, qpn, generation, read_line, in_extent):
        super().__init__(qpn, generation)
        self._next, self._read, self._in_extent = None, read_line, in_extent
        self.linked = 0
        self.fetched = 0

    def link(self, nodes, line):
        """Add ``nodes`` linked nodes, the first one in block ``line`` (None: unknown block)."""
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
        """Read the next node; return the unpacked block.

        Raises
        ------
        BrokenList
        """
        if self._next is None or not self._in_extent(self._next):
            raise BrokenList(abi.Reason.BAD_POINTER)
        try:
            block = self._block()
        except MemoryFault:
            raise BrokenList(abi.Reason.DMA_ERROR) from None
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
        """Fetch, then match as :meth:`Matcher.match`."""
        self.fetch()
        return super().match(psn, rsn, slack, depth)

    def probe(self, rsn):
        """Fetch, then process a probe as :meth:`Matcher.probe`."""
        self.fetch()
        super().probe(rsn)

    def not_matched(self, rsn, slack):
        """Fetch, then proceed as :meth:`Matcher.not_matched`."""
        self.fetch()
        super().not_matched(rsn, slack)
