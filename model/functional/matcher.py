"""Matcher without time: the functional model of ``hdl/adamap/match/matcher.py``."""

from collections import deque
from itertools import islice

from weft.hdl.contract import abi

from .window import signed24

SLACK_MAX = (1 << 23) - 1


class Matcher:
    """List of one QP: finds the hole of a retransmission, and retires nodes.

    Nodes retire in the order of the list. The head retires when none of its holes is open. It retires with open holes
    when headers have passed it, when a header needs a node too far from it to be cached with it, or when it is forced
    to.

    Parameters
    ----------
    qpn, generation : int

    Attributes
    ----------
    nodes : deque of CachedNode
        The list, head first.
    retired : deque of CachedNode
        Retired nodes that are not reported yet.
    """

    def __init__(self, qpn, generation):
        self.qpn, self.generation = qpn, generation
        self.nodes, self.retired = deque(), deque()

    def add(self, node):
        """Append a CachedNode to the list."""
        self.nodes.append(node)

    def match(self, psn, rsn, slack, depth=None):
        """Match a retransmission.

        Parameters
        ----------
        psn, rsn : int
            32 bit and 24 bit.
        slack : int
            Number of RSNs by which a newer RSN passes the head.
        depth : int, optional
            Largest number of nodes of the list that may be cached.

        Returns
        -------
        abi.Reason
        """
        self.pass_over(rsn, slack, depth)
        reason = self._mark(psn, rsn)
        self._retire_while()
        return reason

    def pass_over(self, rsn, slack, depth=None):
        """Retire the heads that a retransmission passes, before its node is looked up."""
        self._retire_while(lambda head: self.passed(head, rsn, slack) or self._too_deep(rsn, depth))

    @staticmethod
    def passed(head, rsn, slack):
        """Return whether an RSN is so far after a head that the head must retire."""
        return signed24(rsn - head.rsn) + 1 >= head.count + min(max(slack, 1), SLACK_MAX)

    @staticmethod
    def probed(head, rsn):
        """Return whether all RSNs of a head are older than an RSN."""
        return signed24(rsn - head.rsn) >= head.count

    def probe(self, rsn):
        """Process a probe, which states that every older RSN was sent."""
        self._retire_while(lambda head: self.probed(head, rsn))

    def not_matched(self, rsn, slack):
        """Leave a retransmission to the driver: its hole stays open, even if it is the last one for a node.

        Without slack the node ends there; with slack further retransmissions may still arrive for it.
        """
        beyond = min(slack, SLACK_MAX) if slack > 1 else 0
        self._retire_while(lambda head: self._distance(rsn) + 1 >= head.count + beyond)

    def force(self):
        """Retire the head, whose entry is needed."""
        if self.nodes:
            self.retired.append(self.nodes.popleft())
        self._retire_while()

    def _retire_while(self, passed=lambda head: False):
        """Retire the head while it is finished or passed."""
        while self.nodes and (not self.nodes[0].left or passed(self.nodes[0])):
            self.retired.append(self.nodes.popleft())

    def _distance(self, rsn):
        """Return the distance of an RSN from the head's first hole."""
        return signed24(rsn - self.nodes[0].rsn)

    def _mark(self, psn, rsn):
        if not self.nodes or self._distance(rsn) < 0:
            return abi.Reason.STALE_RSN
        node = next((node for node in self.nodes if node.slot(rsn) is not None), None)
        bit = node and node.bit(node.slot(rsn), psn)
        if bit is None:
            return abi.Reason.NOT_IN_NODE
        if not node.left or not node.open >> bit & 1:     # `left` is 0 early if the node's count was too low
            return abi.Reason.DUPLICATE
        node.mark(bit)
        return abi.Reason.OK

    def _too_deep(self, rsn, depth):
        """Return whether the node of an RSN cannot be cached at the same time as the head."""
        return (depth is not None and len(self.nodes) > depth
                and self._distance(rsn) >= sum(node.count for node in islice(self.nodes, depth)))
