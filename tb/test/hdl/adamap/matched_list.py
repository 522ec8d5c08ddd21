"""One list around the matcher: linked nodes, cached nodes, and the model's outcome of its headers."""

from collections import deque
from dataclasses import dataclass
from itertools import takewhile

from weft.hdl.contract import abi
from weft.hdl.part.layouts import MatchRequest
from weft.model.functional.cached_node import CachedNode
from weft.model.functional.matcher import Matcher
from weft.tb.sim.stream.payload import pack


def payload(header):
    """Return the bits of a Header at the matcher's input."""
    return pack(MatchRequest, qpn=header.qpn, generation=header.generation, psn=header.psn, rsn=header.rsn,
                probe=header.probe, ticket=header.ticket % 256)


@dataclass
class Header:
    """A MatchRequest; ``ticket`` is not cut to 8 bits."""

    qpn: int
    generation: int
    psn: int
    rsn: int
    probe: bool
    ticket: int
    slack: int | None = None    # of an order, which the card derives from an unmatched header

    def beyond(self, rsn):
        """Return True if this header is for a hole with that RSN or a later one."""
        return (self.rsn - (self.slack is None and self.probe) - rsn) % (1 << 24) < 1 << 23


class List:
    """List of one incarnation of a QP.

    Attributes
    ----------
    order : list of CachedNode
        All linked nodes; model and card retire them one by one, the card ``left`` of them so far.
    ahead : deque of (Node, block)
        Linked and not cached.
    cached : deque of (entry, Node, block)
        The nodes before those, head first.
    causes : deque of int
        Tickets that the reports of ``model.retired`` have to wait for.
    """

    def __init__(self, qpn, generation, rsn):
        self.qpn, self.generation, self.live = qpn, generation, True
        self.model = Matcher(qpn, generation)
        self.order, self.ahead, self.cached = [], deque(), deque()
        self.left, self.fetching, self.kept, self.next_rsn = 0, False, False, rsn
        self.causes = deque()

    def link(self, node, block, line):
        """Link a node like the driver."""
        cached = CachedNode(node, line)
        self.order.append(cached)
        self.model.add(cached)
        self.ahead.append((node, block))
        self.next_rsn = cached.next_rsn

    def caused(self, ticket):
        """Register a packet as the cause of the model's latest retirements."""
        self.causes += [ticket] * (len(self.model.retired) - len(self.causes))

    @property
    def gone(self):
        """Number of nodes that left the model's list."""
        return len(self.order) - len(self.model.nodes)

    def match(self, header, slack, depth, left):
        """Return the outcome of a header that was looked up when ``left`` nodes had left the card's list.

        A finished node leaves the model's list at once, the card's a few cycles later.
        """
        assert not any(node.left for node in self.order[left:self.gone]), "a node with open holes should have left"
        self.model.pass_over(header.rsn, slack, depth)
        lingering = [*takewhile(lambda node: not node.left, reversed(self.order[left:self.gone]))]
        lingering = [node for node in lingering if not self.model.passed(node, header.rsn, slack)]
        reason = self.model.match(header.psn, header.rsn, slack, depth)
        for node in lingering:
            if (slot := node.slot(header.rsn)) is not None:
                return abi.Reason.DUPLICATE if node.bit(slot, header.psn) is not None else abi.Reason.NOT_IN_NODE
        behind = lingering and (header.rsn - lingering[-1].rsn) % (1 << 24) < 1 << 23
        if behind and not self.model.nodes and reason == abi.Reason.STALE_RSN:
            return abi.Reason.NOT_IN_NODE
        return reason
