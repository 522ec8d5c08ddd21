"""Receiving side of a QP: the linked list of holes, what is complete, what to tell the peer.

Sans-IO apart from the knitting blocks it fills: fed with Meta Reports and control frames, it
answers with :class:`LinkDoorbell`, :class:`CumDoorbell` and control frames, to be carried out in
order. A node is linked before its loss report is sent.
"""

import collections
import heapq
from dataclasses import dataclass, field

from weft.hdl import abi, wire

from .holes import encode, node_runs, residue_runs
from .sequence import ControlFrame
from .wrap import near

_ACCESS = (abi.Reason.BAD_KEY, abi.Reason.OUT_OF_RANGE, abi.Reason.NO_PERMISSION, abi.Reason.WRONG_PD)
_NAK_SYNDROME = dict.fromkeys(_ACCESS, wire.Syndrome.NAK_REMOTE_ACCESS) | {
    abi.Reason.LENGTH_MISMATCH: wire.Syndrome.NAK_INVALID_REQUEST
}
DELIVERED_KEPT = 1 << 16  # message ends remembered against repeated reports


@dataclass
class LinkDoorbell:
    """So many nodes are linked by now."""

    linked: int


@dataclass
class CumDoorbell:
    """Every older PSN is acknowledged."""

    psn: int


@dataclass
class MessageEnd:
    """The last packet of a message: its PSN, and the immediate if it had one."""

    psn: int
    imm: int | None
    length: int
    va: int


@dataclass(eq=False)
class _Node:
    """A node of the list, or one that waits for a block."""

    runs: list
    fields: dict
    line: int = None
    rsn: int = None
    data: bytes = field(default=b"", repr=False)
    retired: bool = False

    @property
    def lowest(self):
        return self.runs[0][0]


class Receiver:
    """Receiving side of one QP.

    Parameters
    ----------
    qpn, generation : int
        Of the QP, as its nodes say.
    psn : int
        First PSN expected.
    pool : KnittingBuffer
        Where blocks come from; :attr:`head_block` is taken at once.
    settle_ns : int
        How long a retired node still counts as open. The MESSAGE_END of a retransmitted packet may
        come this much later than the RETIRE that its bit made possible (they take different ways
        through the card); waiting for it keeps immediates in order.

    Attributes
    ----------
    actions : deque
        To be carried out in order.
    messages : deque of MessageEnd
        Complete, in order, not yet delivered: the owner takes them from the left.
    broken : abi.Reason or None
        Why the card gave the list up.
    """

    def __init__(self, *, qpn, generation, psn, pool, settle_ns=0):
        self.qpn, self.generation, self.pool, self.settle_ns = qpn, generation, pool, settle_ns
        self._closing = collections.deque()   # (time, node): retired, still counted as open
        self.cum = psn  # every older PSN is in place
        self.base = psn  # window base that is covered by reported holes
        self.holes_seen = 0
        self.next_rsn = 0
        self.linked = 0
        self.head_block = self._tail = pool.admit(self)
        self.actions = collections.deque()
        self.messages = collections.deque()
        self.broken = None
        self.nak = None  # (psn, syndrome): oldest refused packet
        self.nak_sent = False
        self.msn = 0
        self.counts = collections.Counter()
        self._list = collections.deque()  # linked nodes, head first
        self._by_line = {}
        self._unlinked = collections.deque()  # nodes that wait for a block
        self._open = []  # heap of (lowest psn, number, node), retired ones included
        self._number = 0
        self._events = collections.deque()  # (base, holes, probe rsn or None) not yet covered
        self._ends = {}  # psn -> MessageEnd, not complete
        self._end_heap = []
        self._delivered = collections.OrderedDict()
        self._cum_posted = psn
        self._delivered_any = False
        self._probed = False

    # ------------------------------------------------------------------------------ from the card

    def on_node(self, node):
        """A NODE report: lost PSNs."""
        if self.broken is not None:
            return
        runs = node_runs(node, self.base)
        self.holes_seen += node.count
        self.counts["holes"] += node.count
        self._add(runs, {"base_psn": node.base_psn, "count": node.count, "encoding": node.encoding, "body": node.body})

    def _add(self, runs, fields):
        node = _Node(runs, fields)
        self._number += 1
        heapq.heappush(self._open, (node.lowest, self._number, node))
        self._unlinked.append(node)
        self.link_waiting()

    def link_waiting(self):
        """Link the nodes that wait for a block, as far as blocks are free."""
        linked = []
        while self._unlinked:
            successor = self.pool.take(self)
            if successor is None:
                self.counts["pool_waits"] += 1
                break
            node = self._unlinked.popleft()
            node.rsn = self.next_rsn
            node.line, self._tail = self._tail, successor
            node.data = self.pool.write(
                node.line,
                node.fields | {"qpn": self.qpn, "generation": self.generation, "rsn": node.rsn & 0xFFFF_FFFF},
                successor,
            )
            self.next_rsn += node.fields["count"]
            self.linked += 1
            self._list.append(node)
            self._by_line[node.line] = node
            self.pool.set_linked(self, True)
            linked.append(node)
        if linked:
            self.actions.append(LinkDoorbell(self.linked))
            for node in linked:
                self._report(node)

    @property
    def waits_for_blocks(self):
        return bool(self._unlinked)

    def _report(self, node):
        self.counts["loss_reports"] += 1
        self.actions.append(ControlFrame(wire.Opcode.LOSS_REPORT, node.lowest, node.rsn, payload=node.data))

    def on_retire(self, report, now=0):
        """A RETIRE report: a block comes back, perhaps with holes that were lost again.

        Raises
        ------
        RuntimeError
            If the block is not the head of the list.
        """
        node = self._by_line.pop(report.line, None)
        if node is None or node is not self._list[0]:
            raise RuntimeError(f"QP {self.qpn}: the card retired block {report.line:#x}, which is not the list's head")
        self._list.popleft()
        self._closing.append((now + self.settle_ns, node))
        self.pool.release(node.line)
        if not self._list:
            self.pool.set_linked(self, False)
        if report.residue:
            left = residue_runs(node.runs, report.open)
            self.counts["residue"] += sum(n for _, n in left)
            for runs, fields in encode(left):
                self._add(runs, fields)

    def on_event(self, report):
        """MESSAGE_END, PROGRESS, PROBE, ERROR or QP_ERROR."""
        kind = report.kind
        if kind is abi.ReportKind.QP_ERROR:
            self.broken = report.reason
            return
        if kind is abi.ReportKind.ERROR:
            self._refused(
                near(report.psn % (1 << wire.PSN_BITS), self.cum, wire.PSN_BITS), _NAK_SYNDROME.get(report.reason)
            )
            return
        psn = near(report.psn, self.cum, 32)
        if kind is abi.ReportKind.MESSAGE_END and psn not in self._ends and psn not in self._delivered:
            self._ends[psn] = MessageEnd(psn, report.imm if report.has_imm else None, report.length, report.va)
            heapq.heappush(self._end_heap, psn)
        rsn = near(report.rsn, self.next_rsn, wire.RSN_BITS) if kind is abi.ReportKind.PROBE else None
        self._events.append((near(report.base, self.base, 32), report.holes, rsn))

    def _refused(self, psn, syndrome):
        """The oldest refused packet is what the NAK will name, once everything before it is complete."""
        if syndrome is not None and psn >= self.cum and (self.nak is None or psn < self.nak[0]):
            self.nak = (psn, syndrome)

    # -------------------------------------------------------------------------------- from the peer

    def on_report_request(self, rsn24, limit=16):
        """The peer misses the loss report whose first hole has this RSN: it and the next ones again."""
        rsn = near(rsn24, self.next_rsn, wire.RSN_BITS)
        self._repeat(rsn, limit)

    def _repeat(self, rsn, limit=None):
        found = []
        for node in reversed(self._list):
            if node.rsn < rsn:
                break
            found.append(node)
        for node in found[::-1][:limit]:
            self.counts["repeated_reports"] += 1
            self._report(node)

    # -------------------------------------------------------------------------------------- progress

    @property
    def deadline(self):
        """When :meth:`settle` wants to be called, or None."""
        return self._closing[0][0] if self._closing else None

    def settle(self, now=0):
        """Work out what is complete after a batch of reports; fills :attr:`messages` and :attr:`actions`."""
        probes = []
        while self._events and near(self._events[0][1], self.holes_seen, 32) <= self.holes_seen:
            base, _, rsn = self._events.popleft()
            self.base = max(self.base, base)
            if rsn is not None:
                probes.append(rsn)
        while self._closing and self._closing[0][0] <= now:
            self._closing.popleft()[1].retired = True
        while self._open and self._open[0][2].retired:
            heapq.heappop(self._open)
        cum = min(self.base, self._open[0][0]) if self._open else self.base
        self.cum = max(self.cum, cum)
        while self._end_heap and self._end_heap[0] < self.cum:
            psn = heapq.heappop(self._end_heap)
            self.messages.append(self._ends.pop(psn))
            self._delivered[psn] = None
            if len(self._delivered) > DELIVERED_KEPT:
                self._delivered.popitem(last=False)
        if self.cum > self._cum_posted and (self.messages or probes):
            self._cum_posted = self.cum
            self.actions.append(CumDoorbell(self.cum))
        if probes:
            self._probed = True
            self.nak_sent = False
            self._repeat(min(probes))

    def take_message(self):
        """The next complete message; it counts as delivered and is acknowledged."""
        self._delivered_any = True
        self.msn += 1
        return self.messages.popleft()

    def acknowledge(self):
        """Queue the ACK, RNR NAK or NAK that is due, after the owner took what it could from :attr:`messages`."""
        if self._delivered_any or self._probed:
            if self.messages and self._probed:
                psn, syndrome = self.messages[0].psn, wire.Syndrome.RNR_NAK
            else:
                psn, syndrome = (self.messages[0].psn if self.messages else self.cum) - 1, wire.Syndrome.ACK
            self.actions.append(ControlFrame(wire.Opcode.ACKNOWLEDGE, psn, syndrome=syndrome, msn=self.msn))
            self._delivered_any = self._probed = False
        if self.nak and self.cum >= self.nak[0] and not self.nak_sent:
            self.nak_sent = True
            self.actions.append(ControlFrame(wire.Opcode.ACKNOWLEDGE, self.nak[0], syndrome=self.nak[1], msn=self.msn))

    def close(self):
        """Give all blocks back: the QP is destroyed, the card does not know them any more."""
        for node in self._list:
            self.pool.release(node.line)
        self._list.clear()
        self._by_line.clear()
        self._unlinked.clear()
        if self._tail is not None:
            self.pool.release(self._tail)
            self._tail = None
        self.pool.forget(self)
