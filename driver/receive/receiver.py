"""Receiving side of a QP: what is missing, what is complete, what to tell the peer.

Sans-IO apart from the knitting blocks it fills: fed with Meta Reports and control frames, it
answers with :class:`~weft.driver.receive.hole_list.LinkDoorbell`, :class:`CumDoorbell` and control frames,
to be carried out in order. A node is linked before its loss report is sent.
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
REPEATED_REPORTS_MAX = 64   # loss reports that one probe brings again
LAST_ANSWERS_MAX = 64       # probes that a QP in ERR answers
_ACCESS = (abi.Reason.BAD_KEY, abi.Reason.OUT_OF_RANGE, abi.Reason.NO_PERMISSION, abi.Reason.WRONG_PD)
_NAK_SYNDROME = dict.fromkeys(_ACCESS, wire.Syndrome.NAK_REMOTE_ACCESS) | {
    abi.Reason.LENGTH_MISMATCH: wire.Syndrome.NAK_INVALID_REQUEST
}


@dataclass
class CumDoorbell:
    """Every older PSN is acknowledged."""

    psn: int


class Receiver:
    """Receiving side of one QP.

    When so many holes wait for blocks that they become spans, the peer is told to send no new data until most of them
    are linked.

    Parameters
    ----------
    psn : int
        First PSN expected.
    qpn, generation, pool, waiting_runs_max
        See :class:`~weft.driver.receive.hole_list.HoleList`.
    messages_max : int
        Messages that may wait for what is before them, or for a receive request. The peer gets an error for one more.
    rnr_timer : int
        What the peer is asked to wait when no receive request is there, as the verbs' ``min_rnr_timer``.

    Attributes
    ----------
    holes : HoleList
    cum : int
        Every older PSN is in place.
    base : int
        Window base that is covered by reported holes.
    actions : deque
        To be carried out in order.
    messages : deque of Message
        Complete, in order, not yet delivered: the owner takes them from the left.
    broken : abi.Reason or None
        Why the card gave the list up.
    limit : int or None
        PSN from which on the peer shall send nothing new.
    msn : int
        Requests of the peer that are complete, in order.
    held : int
        Messages that the owner took and that are not complete: they count as waiting.
    """

    def __init__(self, *, qpn, generation, psn, pool, waiting_runs_max=WAITING_RUNS_MAX, rnr_timer=RNR_TIMER,
                 messages_max=MESSAGES_MAX):
        self.cum = self.base = psn
        self.actions = collections.deque()
        self.messages = collections.deque()
        self.broken = None
        self.nak = None  # (psn, syndrome): oldest refused packet
        self.nak_sent = False
        self.msn = self.held = 0
        self.limit = None
        self.counts = collections.Counter()
        self.holes = HoleList(qpn=qpn, generation=generation, pool=pool, waiting_runs_max=waiting_runs_max,
                              actions=self.actions, counts=self.counts)
        self.rnr_timer, self._messages_max = rnr_timer, messages_max
        self._holes_seen = 0
        self._limit_serial = 0
        self._events = collections.deque()  # (base, holes, probe rsn or None) not yet covered
        self._order = MessageOrder()
        self._cum_posted = psn
        self._delivered_any = False
        self._probed = False
        self._said = None           # every older PSN was acknowledged; None: nothing was
        self._says_again, self._answers_left = False, LAST_ANSWERS_MAX

    # ------------------------------------------------------------------------------ from the card

    def on_node(self, node):
        """A NODE report: lost PSNs."""
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
        """Link what waits for a block, as far as blocks are to be had."""
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
        """A RETIRE report: a block comes back, perhaps with holes that were lost again.

        The events of a packet that filled a hole came before: the card keeps that order.

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
        """An UNMATCHED report: a packet came whose hole the card left open. It is none of what its node leaves."""
        rsn = near(report.rsn, self.holes.next_rsn, wire.RSN_BITS)
        self.counts["unmatched"] += self.holes.fill(near(report.psn, self.cum, 32), rsn)

    def on_report(self, kind, report):
        """Take any report of the QP but TX_ERROR, which is the sender's.

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
        """The QP is in ERR, and its peer, which sends ``psn`` next, does not know. If all that it sent had been
        acknowledged, it has not heard that either."""
        self.nak_sent = False
        if self._answers_left and self.all_acknowledged and near(psn, self.cum, wire.PSN_BITS) <= self.cum:
            self._says_again = True
            self._answers_left -= 1

    @property
    def all_acknowledged(self):
        """What came is complete, and the peer was told."""
        return self._said == self.cum and self.holes.oldest is None and self.nak is None and not self.held

    def on_message_end(self, report):
        """MESSAGE_END: one comes for every message."""
        psn = near(report.psn, self.cum, 32)
        if len(self._order.heap) + len(self.messages) + self.held < self._messages_max:
            self._order.add(psn, report)
        else:
            self.counts["messages_refused"] += 1
            self._refused(psn, wire.Syndrome.NAK_REMOTE_OPERATIONAL)
        self._on_progress(report)

    def _refused(self, psn, syndrome):
        """The oldest refused packet is what the NAK will name, once everything before it is complete."""
        if syndrome is not None and psn >= self.cum and (self.nak is None or psn < self.nak[0]):
            self.nak = (psn, syndrome)

    # -------------------------------------------------------------------------------- from the peer

    def on_report_request(self, rsn24, limit=16):
        """The peer misses the loss report whose first hole has this RSN: it and the next ones again."""
        self.holes.repeat(near(rsn24, self.holes.next_rsn, wire.RSN_BITS), limit)

    # -------------------------------------------------------------------------------------- progress

    def settle(self):
        """Work out what is complete after a batch of reports; fills :attr:`messages` and :attr:`actions`."""
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
        """The next complete message; it counts as delivered and is acknowledged."""
        self._delivered_any = True
        return self.messages.popleft()

    def completed(self, requests=1):
        """So many more requests are done with; the peer is told."""
        self._delivered_any = True
        self.msn += requests

    def refuse(self, psn, syndrome):
        """The peer asked for what it must not have: the message with this PSN, which was taken."""
        self.nak, self.nak_sent = (psn, syndrome), False

    @property
    def owes_answer(self):
        """:meth:`acknowledge` has something to say."""
        return self._delivered_any or self._probed or self.nak is not None

    def acknowledge(self, waiting=None, may_refuse=True):
        """Queue the ACK, RNR NAK or NAK that is due, after the owner took what it could from :attr:`messages`.

        Parameters
        ----------
        waiting : int or None
            PSN of the message that waits for a receive request before anything else can complete.
        may_refuse : bool
            Everything that was asked for before the refused packet is answered.
        """
        if self._probed and waiting is not None:
            self._acknowledge(waiting, rnr_syndrome(self.rnr_timer))
        if self._delivered_any or self._probed:
            self._said = self.messages[0].psn if self.messages else self.cum
            self._acknowledge(self._said - 1, wire.Syndrome.ACK)
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
        elif self._says_again:
            self._says_again = False
            self._acknowledge(self._said - 1, wire.Syndrome.ACK)

    def close(self):
        """Give all blocks back: the QP is destroyed, the card does not know them any more."""
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
