"""Receiving side of a QP: the linked list of holes, what is complete, what to tell the peer.

Sans-IO apart from the knitting blocks it fills: fed with Meta Reports and control frames, it
answers with :class:`LinkDoorbell`, :class:`CumDoorbell` and control frames, to be carried out in
order. A node is linked before its loss report is sent.
"""

import bisect
import collections
import heapq
from dataclasses import dataclass, field

from weft.hdl import abi, wire

from .control import ControlFrame
from .holes import encode, node_runs, residue_runs, without
from .messages import MessageEnd, MessageOrder
from .waiting import WaitingHoles
from .wrap import near

__all__ = ["CumDoorbell", "LinkDoorbell", "MessageEnd", "Receiver"]
_ACCESS = (abi.Reason.BAD_KEY, abi.Reason.OUT_OF_RANGE, abi.Reason.NO_PERMISSION, abi.Reason.WRONG_PD)
_NAK_SYNDROME = dict.fromkeys(_ACCESS, wire.Syndrome.NAK_REMOTE_ACCESS) | {
    abi.Reason.LENGTH_MISMATCH: wire.Syndrome.NAK_INVALID_REQUEST
}
WAITING_RUNS_MAX = 4096


@dataclass
class LinkDoorbell:
    """So many nodes were linked."""

    nodes: int


@dataclass
class CumDoorbell:
    """Every older PSN is acknowledged."""

    psn: int


@dataclass(eq=False)
class _Node:
    """A node of the list."""

    line: int
    rsn: int
    runs: list
    encoding: int
    data: bytes = field(repr=False)
    retired: bool = False
    filled: set = field(default_factory=set, repr=False)  # PSNs of holes the card did not match

    def hole(self, rsn):
        """PSN of the hole with this RSN, or None."""
        slot = rsn - self.rsn
        for psn, length in self.runs:
            if 0 <= slot < length:
                return psn + slot
            slot -= length
        return None


class Receiver:
    """Receiving side of one QP.

    When blocks run short, holes wait in :class:`~weft.driver.waiting.WaitingHoles` and are linked as blocks come back.
    When even those become many, the peer is told to send no new data until most of them are linked.

    Parameters
    ----------
    qpn, generation : int
        Of the QP, as its nodes say.
    psn : int
        First PSN expected.
    pool : KnittingBuffer
        Where blocks come from; :attr:`head_block` is taken at once.
    waiting_runs_max : int
        Runs of holes that may wait for a block before they become spans and the peer has to stop.

    Attributes
    ----------
    actions : deque
        To be carried out in order.
    messages : deque of MessageEnd
        Complete, in order, not yet delivered: the owner takes them from the left.
    broken : abi.Reason or None
        Why the card gave the list up.
    limit : int or None
        PSN from which on the peer shall send nothing new.
    """

    def __init__(self, *, qpn, generation, psn, pool, waiting_runs_max=WAITING_RUNS_MAX):
        self.qpn, self.generation, self.pool = qpn, generation, pool
        self.cum = psn  # every older PSN is in place
        self.base = psn  # window base that is covered by reported holes
        self.holes_seen = 0
        self.next_rsn = 0
        self.linked = 0
        self._chain = pool.open_chain()
        self.actions = collections.deque()
        self.messages = collections.deque()
        self.broken = None
        self.nak = None  # (psn, syndrome): oldest refused packet
        self.nak_sent = False
        self.msn = 0
        self.limit = None
        self.counts = collections.Counter()
        self._limit_serial = 0
        self._list = collections.deque()  # linked nodes, head first
        self._waiting = WaitingHoles(waiting_runs_max)
        self._open = []  # heap of (lowest psn, rsn, node), retired ones included
        self._events = collections.deque()  # (base, holes, probe rsn or None) not yet covered
        self._order = MessageOrder()
        self._cum_posted = psn
        self._delivered_any = False
        self._probed = False

    @property
    def head_block(self):
        """Line the list starts with."""
        return self._chain.head

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
        """Link a node at once, or let its holes wait with the others."""
        if not self._waiting and self._link(runs, fields):
            self._announce(1)
            return
        self.counts["waited"] += fields["count"]
        coarsened = self._waiting.add(runs)
        self.counts["coarsened"] = self._waiting.added
        if coarsened and self.limit is None:
            self._set_limit(max(self.base, sum(runs[-1])))
        self.link_waiting()

    def _link(self, runs, fields):
        linked = self._chain.link(
            fields | {"qpn": self.qpn, "generation": self.generation, "rsn": self.next_rsn & 0xFFFF_FFFF}
        )
        if linked is None:
            self.counts["pool_waits"] += 1
            return False
        node = _Node(linked[0], self.next_rsn, runs, fields["encoding"], linked[1])
        heapq.heappush(self._open, (runs[0][0], node.rsn, node))
        self._list.append(node)
        self.next_rsn += fields["count"]
        self.linked += 1
        return True

    def link_waiting(self):
        """Link what waits for a block, as far as blocks are to be had."""
        linked = 0
        while self._waiting and self._chain.has_room:
            linked += self._link(*self._waiting.take_node())
        if self._waiting:
            self.counts["pool_waits"] += 1
        self._announce(linked)
        if self.limit is not None and len(self._waiting) <= self._waiting.runs_max // 4:
            self._set_limit(None)

    def _announce(self, count):
        """Tell the card, then the peer, of the last ``count`` nodes."""
        if count:
            self.actions.append(LinkDoorbell(count))
            for i in range(-count, 0):
                self._report(self._list[i])

    @property
    def waits_for_blocks(self):
        return bool(self._waiting)

    def _report(self, node):
        self.counts["loss_reports"] += 1
        self.actions.append(ControlFrame(wire.Opcode.LOSS_REPORT, node.runs[0][0], node.rsn, payload=node.data))

    def _set_limit(self, psn):
        self.limit = psn
        self._limit_serial += 1
        self.counts["limits"] += psn is not None
        self._report_limit()

    def _report_limit(self):
        psn = self.base if self.limit is None else self.limit
        self.actions.append(ControlFrame(
            wire.Opcode.RECEIVE_LIMIT, psn, limited=self.limit is not None, serial=self._limit_serial))

    def on_retire(self, report):
        """A RETIRE report: a block comes back, perhaps with holes that were lost again.

        The events of a packet that filled a hole came before: the card keeps that order.

        Raises
        ------
        RuntimeError
            If the block is not the head of the list.
        """
        self._chain.retire(report.line)
        node = self._list.popleft()
        node.retired = True
        if report.residue:
            left = without(residue_runs(node.runs, node.encoding, report.open), node.filled)
            self.counts["residue"] += sum(n for _, n in left)
            for runs, fields in encode(left):
                self._add(runs, fields)

    def on_unmatched(self, report):
        """An UNMATCHED report: a packet came whose hole the card left open. It is none of what its node leaves."""
        rsn = near(report.rsn, self.next_rsn, wire.RSN_BITS)
        psn, at = near(report.psn, self.cum, 32), bisect.bisect_right(self._list, rsn, key=lambda node: node.rsn) - 1
        if at >= 0 and self._list[at].hole(rsn) == psn:
            self.counts["unmatched"] += 1
            self._list[at].filled.add(psn)

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
        if kind is abi.ReportKind.MESSAGE_END:
            self._order.add(psn, report)
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

    def settle(self):
        """Work out what is complete after a batch of reports; fills :attr:`messages` and :attr:`actions`."""
        probes = []
        while self._events and near(self._events[0][1], self.holes_seen, abi.HOLES_BITS) <= self.holes_seen:
            base, _, rsn = self._events.popleft()
            self.base = max(self.base, base)
            if rsn is not None:
                probes.append(rsn)
        while self._open and self._open[0][2].retired:
            heapq.heappop(self._open)
        oldest = [self._open[0][0]] if self._open else []
        if self._waiting:
            oldest.append(self._waiting.lowest)
        self.cum = max(self.cum, min(self.base, *oldest) if oldest else self.base)
        self.messages.extend(self._order.release(self.cum))
        if self.cum > self._cum_posted and (self.messages or probes):
            self._cum_posted = self.cum
            self.actions.append(CumDoorbell(self.cum))
        if probes:
            self._probed = True
            self.nak_sent = False
            self._repeat(min(probes))
            if self._limit_serial:
                self._report_limit()

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
        self._list.clear()
        self._chain.close()
