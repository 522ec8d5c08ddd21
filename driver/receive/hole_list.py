"""List of holes of one QP: nodes linked for the card, in the order in which the peer retransmits."""

import bisect
import collections
import heapq
from dataclasses import dataclass, field

from weft.hdl.contract import abi, wire

from ..knitting.holes import encode_first, residue_runs, without
from ..protocol.control import ControlFrame

WAITING_RUNS_MAX = 4096
_RETIRED_KEPT = 64
_DOORBELL_NODES = (1 << abi.LINK_DOORBELL.by_name["nodes"].width) - 1


class WaitingHoles:
    """Set of PSNs as runs in PSN order. Nodes are taken from it one at a time, as blocks become free.

    The nodes are as full as the encodings allow, whatever reports the holes came from. With more than ``runs_max``
    runs, the closest ones become spans, which include the received PSNs between them. The peer retransmits those PSNs
    too, which is harmless, and never more than go-back-N from the oldest hole. Since no node holds more than 320 PSNs,
    a span never saves blocks compared with a bitmap of the same range. It only bounds the memory of the waiting holes.

    Parameters
    ----------
    runs_max : int

    Attributes
    ----------
    added : int
        PSNs added by spans.
    starts : list of int
        First PSN of each run.
    """

    def __init__(self, runs_max):
        self.runs_max = runs_max
        self.added = 0
        self.starts, self._ends = [], []

    def __len__(self):
        """Return the number of runs."""
        return len(self.starts)

    @property
    def lowest(self):
        return self.starts[0]

    @property
    def runs(self):
        return [(s, e - s) for s, e in zip(self.starts, self._ends, strict=True)]

    def add(self, runs):
        """Add (first, length) runs, which may overlap those present. Return true if spans had to be made."""
        for first, length in runs:
            self._add(first, first + length)
        if len(self.starts) > self.runs_max:
            self._coarsen(max(1, self.runs_max // 2))
            return True
        return False

    def _add(self, start, end):
        lo = bisect.bisect_left(self._ends, start)
        hi = bisect.bisect_right(self.starts, end)
        if lo < hi:
            start, end = min(start, self.starts[lo]), max(end, self._ends[hi - 1])
        self.starts[lo:hi] = [start]
        self._ends[lo:hi] = [end]

    def _coarsen(self, runs):
        """Close the smallest gaps until ``runs`` runs are left."""
        gaps = [b - a for a, b in zip(self._ends, self.starts[1:], strict=False)]
        by_size = sorted(range(len(gaps)), key=gaps.__getitem__)
        closed = set(by_size[:len(self.starts) - runs])
        self.added += sum(gaps[i] for i in closed)
        self.starts = [s for i, s in enumerate(self.starts) if i - 1 not in closed]
        self._ends = [e for i, e in enumerate(self._ends) if i not in closed]

    def take_node(self):
        """Remove the lowest holes, as many as one node holds. Return (runs, NODE fields)."""
        count = min(len(self.starts), abi.NODE_HOLES_MAX)
        runs, fields = encode_first(list(zip(self.starts[:count], self._ends[:count], strict=True)))
        end = sum(runs[-1])
        gone = bisect.bisect_right(self._ends, end)
        del self.starts[:gone], self._ends[:gone]
        if self.starts and self.starts[0] < end:
            self.starts[0] = end
        return runs, fields


@dataclass
class LinkDoorbell:
    """``nodes`` nodes were linked, the first one in block number ``block``."""

    nodes: int
    block: int


@dataclass(eq=False)
class _Node:
    """Node of the list."""

    line: int
    rsn: int
    runs: list
    encoding: int
    data: bytes = field(repr=False)
    retired: bool = False
    filled: set = field(default_factory=set, repr=False)  # PSNs of holes that the driver matched

    def hole(self, rsn):
        """Return the PSN of the hole with this RSN, or None."""
        slot = rsn - self.rsn
        for psn, length in self.runs:
            if 0 <= slot < length:
                return psn + slot
            slot -= length
        return None


class HoleList:
    """Nodes with holes, linked into blocks of the knitting buffer.

    While no block is free, holes wait in :class:`WaitingHoles`. They are linked as blocks are freed.

    Parameters
    ----------
    qpn, generation : int
        Of the QP, as its nodes contain them.
    pool : KnittingBuffer
        Source of blocks.
    waiting_runs_max : int
        Runs of holes that may wait for a block before they become spans.
    actions : deque
        Gets a :class:`LinkDoorbell` and the LOSS_REPORT frames of the nodes linked, in this order.
    counts : Counter
        Statistics by name.

    Attributes
    ----------
    next_rsn : int
        RSN of the next hole to link.
    linked : int
        Number of nodes linked so far, including retired ones.
    nodes : deque
        Linked nodes, head first.
    """

    def __init__(self, *, qpn, generation, pool, waiting_runs_max, actions, counts):
        self.qpn, self.generation, self.pool, self.actions, self.counts = qpn, generation, pool, actions, counts
        self.next_rsn = 0
        self.linked = 0
        self.nodes = collections.deque()
        self._chain = pool.open_chain()
        self._waiting = WaitingHoles(waiting_runs_max)
        self._open = []  # heap of (lowest psn, rsn, node), retired ones included

    @property
    def waits_for_blocks(self):
        return bool(self._waiting.starts)

    @property
    def mostly_linked(self):
        """True if the waiting runs are at most a quarter of the number from which on they become spans."""
        return len(self._waiting) <= self._waiting.runs_max // 4

    @property
    def oldest(self):
        """PSN below which no hole is open, or None without holes."""
        if not self._open and not self._waiting.starts:
            return None
        while self._open and self._open[0][2].retired:
            heapq.heappop(self._open)
        oldest = [self._open[0][0]] if self._open else []
        if self._waiting:
            oldest.append(self._waiting.lowest)
        return min(oldest, default=None)

    def add(self, runs, fields):
        """Link a node at once, or queue its holes with the waiting ones.

        :meth:`link_waiting` links the waiting holes.

        Returns
        -------
        bool
            True if the waiting holes had to become spans.
        """
        if not self._waiting and self._link(runs, fields):
            self._announce(1)
            return False
        self.counts["waited"] += fields["count"]
        coarsened = self._waiting.add(runs)
        self.counts["coarsened"] = self._waiting.added
        return coarsened

    def _link(self, runs, fields):
        linked = self._chain.link(
            fields | {"qpn": self.qpn, "generation": self.generation, "rsn": self.next_rsn & 0xFFFF_FFFF}
        )
        if linked is None:
            self.counts["pool_waits"] += 1
            return False
        node = _Node(linked[0], self.next_rsn, runs, fields["encoding"], linked[1])
        if len(self._open) > 2 * len(self.nodes) + _RETIRED_KEPT:
            self._open = [entry for entry in self._open if not entry[2].retired]
            heapq.heapify(self._open)
        heapq.heappush(self._open, (runs[0][0], node.rsn, node))
        self.nodes.append(node)
        self.next_rsn += fields["count"]
        self.linked += 1
        return True

    def link_waiting(self):
        """Link the waiting holes as far as blocks are free."""
        linked = 0
        while self._waiting and self._chain.has_space:
            linked += self._link(*self._waiting.take_node())
        if self._waiting:
            self.counts["pool_waits"] += 1
        self._announce(linked)

    def _announce(self, count):
        """Announce the last ``count`` nodes: to the card, then to the peer."""
        if count:
            new_nodes = [self.nodes[i] for i in range(-count, 0)]
            for at in range(0, count, _DOORBELL_NODES):
                some = new_nodes[at:at + _DOORBELL_NODES]
                self.actions.append(LinkDoorbell(len(some), self._chain.number(some[0].line)))
            for node in new_nodes:
                self._report(node)

    def _report(self, node):
        self.counts["loss_reports"] += 1
        self.actions.append(ControlFrame(wire.Opcode.LOSS_REPORT, node.runs[0][0], node.rsn, payload=node.data))

    def repeat(self, rsn, limit=None):
        """Report the linked nodes from this RSN on again, at most ``limit`` of them."""
        found = []
        for node in reversed(self.nodes):
            if node.rsn < rsn:
                break
            found.append(node)
        for node in found[::-1][:limit]:
            self.counts["repeated_reports"] += 1
            self._report(node)

    def fill(self, psn, rsn):
        """Mark a hole that the card leaves open as filled: its packet arrived. Return false if there is none."""
        at = bisect.bisect_right(self.nodes, rsn, key=lambda node: node.rsn) - 1
        if at < 0 or self.nodes[at].hole(rsn) != psn:
            return False
        self.nodes[at].filled.add(psn)
        return True

    def retire(self, line, bits):
        """Free the block of the head node. Return the runs of its remaining holes.

        ``bits`` is the field ``open`` of the RETIRE report.

        Raises
        ------
        RuntimeError
            If the block is not the head of the list.
        """
        self._chain.retire(line)
        node = self.nodes.popleft()
        node.retired = True
        return without(residue_runs(node.runs, node.encoding, bits), node.filled) if bits else []

    def close(self):
        """Free all blocks. Requires that the card no longer refers to them."""
        self.nodes.clear()
        self._chain.close()
