"""Receiving side of a QP: tracks missing packets and complete messages, and responds to the peer.

Sans-IO, except for the knitting blocks that it fills: the inputs are Meta Reports and control frames; the outputs are
:class:`~weft.driver.receive.hole_list.LinkDoorbell`, :class:`CumDoorbell` and control frames, which the owner must
process in order. A node is linked before its loss report is sent.
"""

import collections
from dataclasses import dataclass

from weft.hdl.contract import abi, wire

from ..knitting.holes import encode, node_runs
from ..protocol.aeth import rnr_syndrome
from ..protocol.control import ControlFrame
from ..protocol.wrap import near
from .hole_list import WAITING_RUNS_MAX, HoleList
from .messages import MessageOrder

RNR_TIMER = 4   # 40 µs
MESSAGES_MAX = 1 << 18
REPEATED_REPORTS_MAX = 64   # loss reports that one probe repeats
LAST_ANSWERS_MAX = 64       # probes that a QP in ERR responds to
_ACCESS = (abi.Reason.BAD_KEY, abi.Reason.OUT_OF_RANGE, abi.Reason.NO_PERMISSION, abi.Reason.WRONG_PD)
_NAK_SYNDROME = dict.fromkeys(_ACCESS, wire.Syndrome.NAK_REMOTE_ACCESS) | {
    abi.Reason.LENGTH_MISMATCH: wire.Syndrome.NAK_INVALID_REQUEST
}


@dataclass
class CumDoorbell:
    """Doorbell for the cumulative PSN: every PSN before ``psn`` is acknowledged."""

    psn: int


class Receiver:
    """Receiving side of one QP.

    If the number of holes that wait for blocks grows until they become spans, a receive limit stops new data of the
    peer until most of them are linked.

    Parameters
    ----------
    psn : int
        First expected PSN.
    qpn, generation, pool, waiting_runs_max
        See :class:`~weft.driver.receive.hole_list.HoleList`.
    messages_max : int
        Messages that may wait for earlier packets or for a receive request. A further one is answered with an error.
    rnr_timer : int
        Time that the peer must wait if there is no receive request, encoded as the verbs' ``min_rnr_timer``.

    Attributes
    ----------
    holes : HoleList
    cum : int
        Every older PSN is in place.
    base : int
        Window base up to which all holes are reported.
    actions : deque
        For the owner to process, in order.
    messages : deque of Message
        Complete, in order, not yet delivered. The owner takes them from the left.
    broken : abi.Reason or None
        Reason for which the card abandoned the list.
    limit : int or None
        PSN from which on the peer must send no new data.
    msn : int
        Completed requests of the peer, in order.
    held : int
        Messages that the owner took and that are incomplete. They count as waiting.
    """

    def __init__(self, *, qpn, generation, psn, pool, waiting_runs_max=WAITING_RUNS_MAX, rnr_timer=RNR_TIMER,
                 messages_max=MESSAGES_MAX):
        self.cum = self.base = psn
        self.actions = collections.deque()
        self.messages = collections.deque()
        self.broken = None
        self.nak = None  # (psn, syndrome) of the oldest rejected packet
        self.nak_sent = False
        self.msn = self.held = 0
        self.limit = None
        self.counts = collections.Counter()
        self.holes = HoleList(qpn=qpn, generation=generation, pool=pool, waiting_runs_max=waiting_runs_max,
                              actions=self.actions, counts=self.counts)
        self.rnr_timer, self._messages_max = rnr_timer, messages_max
        self._holes_seen = 0
        self._limit_serial = 0
        self._events = collections.deque()  # (base, holes, probe rsn or None), not yet covered by reported holes
        self._order = MessageOrder()
        self._cum_posted = psn
        self._delivered_any = False
        self._probed = False
        self._acknowledged = None           # every older PSN was acknowledged; None before the first acknowledgement
        self._repeats, self._answers_left = False, LAST_ANSWERS_MAX

    # ------------------------------------------------------------------------------ from the card

    def on_node(self, node):
        """Handle a NODE report: lost PSNs."""
        if self.broken is not None:
            return
        runs = node_runs(node, self.base)
        self._holes_seen += node.count
        self.counts["holes"] += node.count
        self._add(runs, {"base_psn": node.base_psn, "count": node.count, "encoding": node.encoding, "body": node.body})

    def _add(self, runs, fields):
        coarsened = self.holes.add(runs, fields)
        if coarsened and self.limit is None:
            self._set_limit(max(self.base, sum(runs[-1])))
        self.link_waiting()

    def link_waiting(self):
        """Link the waiting holes as far as blocks are free. Lift the receive limit when most are linked."""
        self.holes.link_waiting()
        if self.limit is not None and self.holes.mostly_linked:
            self._set_limit(None)

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
        """Handle a RETIRE report: a block is free again, perhaps with residue.

        The card reports the packets that filled the node's holes before the retirement.

        Raises
        ------
        RuntimeError
            If the block is not the head of the list.
        """
        left = self.holes.retire(report.line, report.open)
        self.counts["residue"] += sum(n for _, n in left)
        for runs, fields in encode(left):
            self._add(runs, fields)

    def on_unmatched(self, report):
        """Handle an UNMATCHED report: a packet arrived whose hole the card left open. The hole is not residue."""
        rsn = near(report.rsn, self.holes.next_rsn, wire.RSN_BITS)
        self.counts["unmatched"] += self.holes.fill(near(report.psn, self.cum, 32), rsn)

    def on_report(self, kind, report):
        """Handle any report of the QP except TX_ERROR, which the sender handles.

        Raises
        ------
        RuntimeError
            See :meth:`on_retire`.
        """
        _TAKES[kind](self, report)

    def _on_qp_error(self, report):
        self.broken = report.reason

    def _on_error(self, report):
        self._refused(near(report.psn % (1 << wire.PSN_BITS), self.cum, wire.PSN_BITS),
                      _NAK_SYNDROME.get(report.reason))

    def _on_progress(self, report):
        self._events.append((near(report.base, self.base, 32), report.holes, None))

    def _on_probe(self, report):
        if report.reason is abi.Reason.OK:
            rsn = near(report.rsn, self.holes.next_rsn, wire.RSN_BITS)
            self._events.append((near(report.base, self.base, 32), report.holes, rsn))
        else:
            self._on_probe_in_error(report.psn)

    def _on_probe_in_error(self, psn):
        """Handle a probe that reached this QP in ERR: the peer, whose next PSN is ``psn``, does not know of the error.

        If everything that the peer sent was acknowledged, that acknowledgement was lost as well, and is repeated.
        """
        self.nak_sent = False
        if self._answers_left and self.all_acknowledged and near(psn, self.cum, wire.PSN_BITS) <= self.cum:
            self._repeats = True
            self._answers_left -= 1

    @property
    def all_acknowledged(self):
        """True if everything that arrived is complete and acknowledged."""
        return self._acknowledged == self.cum and self.holes.oldest is None and self.nak is None and not self.held

    def on_message_end(self, report):
        """Handle a MESSAGE_END report. Every message has one."""
        psn = near(report.psn, self.cum, 32)
        if len(self._order.heap) + len(self.messages) + self.held < self._messages_max:
            self._order.add(psn, report)
        else:
            self.counts["messages_refused"] += 1
            self._refused(psn, wire.Syndrome.NAK_REMOTE_OPERATIONAL)
        self._on_progress(report)

    def _refused(self, psn, syndrome):
        """Record the oldest rejected packet. The NAK names it when everything before it is complete."""
        if syndrome is not None and psn >= self.cum and (self.nak is None or psn < self.nak[0]):
            self.nak = (psn, syndrome)

    # -------------------------------------------------------------------------------- from the peer

    def answer_again(self):
        """Answer as if the peer had probed: earlier answers were lost."""
        self._probed, self.nak_sent = True, False

    def on_report_request(self, rsn24, limit=16):
        """Repeat the loss report whose first hole has this RSN, and up to ``limit`` - 1 later ones, for the peer."""
        self.holes.repeat(near(rsn24, self.holes.next_rsn, wire.RSN_BITS), limit)

    # -------------------------------------------------------------------------------------- progress

    def settle(self):
        """Determine what is complete after a batch of reports. Fills :attr:`messages` and :attr:`actions`."""
        probes, events, last = [], self._events, None
        while events:
            base, holes, rsn = events[0]
            if holes != last and near(holes, self._holes_seen, abi.HOLES_BITS) > self._holes_seen:
                break
            events.popleft()
            last = holes
            if base > self.base:
                self.base = base
            if rsn is not None:
                probes.append(rsn)
        oldest = self.holes.oldest
        self.cum = max(self.cum, self.base if oldest is None else min(self.base, oldest))
        self._order.release(self.cum, self.messages)
        if self.cum > self._cum_posted and (self.messages or probes):
            self._cum_posted = self.cum
            self.actions.append(CumDoorbell(self.cum))
        if probes:
            self._probed = True
            self.nak_sent = False
            self.holes.repeat(min(probes), REPEATED_REPORTS_MAX)
            if self._limit_serial:
                self._report_limit()

    def take_message(self):
        """Remove and return the next complete message. It counts as delivered, and will be acknowledged."""
        self._delivered_any = True
        return self.messages.popleft()

    def completed(self, requests=1):
        """Count ``requests`` further completed requests, which the next acknowledgement reports."""
        self._delivered_any = True
        self.msn += requests

    def refuse(self, psn, syndrome):
        """Reject the message with this PSN, which was taken: :meth:`acknowledge` sends a NAK with ``syndrome``."""
        self.nak, self.nak_sent = (psn, syndrome), False

    @property
    def owes_answer(self):
        """True if :meth:`acknowledge` may have a frame to queue."""
        return self._delivered_any or self._probed or self.nak is not None

    def acknowledge(self, waiting=None, may_refuse=True):
        """Queue the ACK, RNR NAK or NAK that is due, after the owner has taken what it can from :attr:`messages`.

        Parameters
        ----------
        waiting : int or None
            PSN of the message that waits for a receive request before anything else can complete.
        may_refuse : bool
            Every request before the rejected packet has its response.
        """
        if self._probed and waiting is not None:
            self._acknowledge(waiting, rnr_syndrome(self.rnr_timer))
        if self._delivered_any or self._probed:
            self._acknowledged = self.messages[0].psn if self.messages else self.cum
            self._acknowledge(self._acknowledged - 1, wire.Syndrome.ACK)
            self._delivered_any = self._probed = False
        if may_refuse:
            self.repeat_last()

    def _acknowledge(self, psn, syndrome):
        self.actions.append(ControlFrame(wire.Opcode.ACKNOWLEDGE, psn, syndrome=syndrome, msn=self.msn))

    def repeat_last(self):
        """Queue the NAK that is due, or the last acknowledgement of a QP in ERR."""
        if self.nak and self.cum >= self.nak[0] and not self.nak_sent:
            self.nak_sent = True
            self._acknowledge(*self.nak)
        elif self._repeats:
            self._repeats = False
            self._acknowledge(self._acknowledged - 1, wire.Syndrome.ACK)

    def close(self):
        """Free all blocks: the QP is destroyed, and the card no longer refers to them."""
        self.holes.close()


_TAKES = {
    abi.ReportKind.NODE: Receiver.on_node,
    abi.ReportKind.RETIRE: Receiver.on_retire,
    abi.ReportKind.UNMATCHED: Receiver.on_unmatched,
    abi.ReportKind.MESSAGE_END: Receiver.on_message_end,
    abi.ReportKind.PROGRESS: Receiver._on_progress,
    abi.ReportKind.PROBE: Receiver._on_probe,
    abi.ReportKind.ERROR: Receiver._on_error,
    abi.ReportKind.QP_ERROR: Receiver._on_qp_error,
}
