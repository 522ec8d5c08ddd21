"""The matcher, without time: the oracle of ``hdl/adamap/match/matcher.py``."""

from collections import deque
from itertools import islice

from weft.hdl.contract import abi

from .window import signed24

SLACK_MAX = (1 << 23) - 1


class Matcher:
    """The list of one QP: finds the hole of a retransmission, and retires nodes.

    Nodes leave in the order of the list. The head leaves once none of its holes is open; or with what is open, when
    headers have passed it over, when nodes further on are wanted than may be cached, or when it is told to.

    Parameters
    ----------
    qpn, generation : int

    Attributes
    ----------
    nodes : deque of CachedNode
        The list, head first.
    retired : deque of CachedNode
        To be reported.
    """

    def __init__(self, qpn, generation):
        self.qpn, self.generation = qpn, generation
        self.nodes, self.retired = deque(), deque()

    def add(self, node):
        """A CachedNode goes on where the list ends."""
        self.nodes.append(node)

    def match(self, psn, rsn, slack, depth=None):
        """A retransmission arrived.

        Parameters
        ----------
        psn, rsn : int
            32 bit and 24 bit.
        slack : int
            By how much a newer RSN passes over the head.
        depth : int, optional
            Nodes of the list that may be cached.

        Returns
        -------
        abi.Reason
        """
        self.pass_over(rsn, slack, depth)
        reason = self._mark(psn, rsn)
        self._retire_while()
        return reason

    def pass_over(self, rsn, slack, depth=None):
        """What a retransmission does before its node is looked for."""
        self._retire_while(lambda head: self.passed(head, rsn, slack) or self._too_deep(rsn, depth))

    @staticmethod
    def passed(head, rsn, slack):
        """Whether an RSN is too far behind a head for it to stay."""
        return signed24(rsn - head.rsn) + 1 >= head.count + min(max(slack, 1), SLACK_MAX)

    @staticmethod
    def probed(head, rsn):
        """Whether all of a head is older than an RSN."""
        return signed24(rsn - head.rsn) >= head.count

    def probe(self, rsn):
        """Every older RSN was sent."""
        self._retire_while(lambda head: self.probed(head, rsn))

    def not_matched(self, rsn, slack):
        """A retransmission is left to the driver: its hole stays open, also if it is the last one to come for a node.

        Without slack the node ends there; with slack others may still come for it.
        """
        beyond = min(slack, SLACK_MAX) if slack > 1 else 0
        self._retire_while(lambda head: self._distance(rsn) + 1 >= head.count + beyond)

    def force(self):
        """The head's place is needed."""
        if self.nodes:
            self.retired.append(self.nodes.popleft())
        self._retire_while()

    def _retire_while(self, passed=lambda head: False):
        """The head leaves as long as it is finished or passed."""
        while self.nodes and (not self.nodes[0].left or passed(self.nodes[0])):
            self.retired.append(self.nodes.popleft())

    def _distance(self, rsn):
        """From the head's first hole."""
        return signed24(rsn - self.nodes[0].rsn)

    def _mark(self, psn, rsn):
        if not self.nodes or self._distance(rsn) < 0:
            return abi.Reason.STALE_RSN
        node = next((node for node in self.nodes if node.slot(rsn) is not None), None)
        bit = node and node.bit(node.slot(rsn), psn)
        if bit is None:
            return abi.Reason.NOT_IN_NODE
        if not node.left or not node.open >> bit & 1:     # a node whose count is too low ends with it
            return abi.Reason.DUPLICATE
        node.mark(bit)
        return abi.Reason.OK

    def _too_deep(self, rsn, depth):
        """The node wanted cannot be cached while the head is."""
        return (depth is not None and len(self.nodes) > depth
                and self._distance(rsn) >= sum(node.count for node in islice(self.nodes, depth)))
