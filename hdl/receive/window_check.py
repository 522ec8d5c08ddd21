"""Use of the window's verdict on a checked packet: placement and reports."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.abi import QpState, Reason, ReportKind
from ..part import layouts
from ..part.counter_ports import DropEvent, count_outputs, pass_counts
from ..part.interfaces import DropReportState
from ..part.layouts import (
    FRAME_LENGTH_WIDTH,
    TICKET_WIDTH,
    Report,
    RxKind,
    RxPacket,
    Segment,
    Verdict,
    WindowRequest,
    WindowVerdict,
)
from ..part.stages import ReadyRegister
from ..part.stream import Fifo, pass_unless
from ..table.kinds import QP_STATES
from .drop_reports import DropReports
from .marks import Marks

DEPTH = 16          # packets that may wait for their verdict


class Action(enum.Enum, shape=2):
    """Action for a packet's payload."""

    NOTHING = 0     # no payload
    DISCARD = 1
    WRITE = 2       # to the segments
    RAW = 3         # to the driver, as a frame


class Placement(data.Struct):
    """Placement of one packet, for :class:`~weft.hdl.receive.place.Place`."""

    action: Action
    length: FRAME_LENGTH_WIDTH     # bytes on the payload stream
    roce: 1
    host: 1
    segment0: Segment
    segment1: Segment
    two: 1              # the second segment is used
    ticket: TICKET_WIDTH


class _Waiting(data.Struct):
    packet: RxPacket
    ticket: TICKET_WIDTH


DROP_REASON = {
    Verdict.STALE: Reason.STALE_PSN,
    Verdict.DUPLICATE: Reason.DUPLICATE,
    Verdict.FAR: Reason.FAR_PSN,
}


class WindowCheck(wiring.Component):
    """Requests the window's verdict on every packet of an active QP, and acts on it, in order.

    One packet per cycle while the window responds as fast; a packet with two reports takes two.
    Up to ``DEPTH`` packets wait for their verdict. A request to the window is held back while
    ``space`` is low, so that a packet is never marked without space for its reports.

    Every packet gets the next ticket. Reports: MESSAGE_END for an accepted original and for a retransmission with
    ``ack_req``, PROGRESS when one is pending in the window, PROBE, UNMATCHED for a retransmission without an entry of
    the match queue. If :class:`~weft.hdl.receive.drop_reports.DropReports` permits, also ERROR for a dropped packet
    whose access was rejected (BAD_KEY to LENGTH_MISMATCH), and PROBE for a QP in ERR, without the state of its window;
    if :class:`~weft.hdl.receive.marks.Marks` permits, MARKED for an accepted packet with the mark CE and without
    PROGRESS and UNMATCHED. The decision takes a cycle more for a dropped packet and two for a marked one.

    The QP is checked once more at the end: payload of a QP that does not receive any more is discarded, although
    the window accepted its packet. That costs no cycle, as the table responds when the placement is offered.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(RxPacket))
    space : In(1)
        The report ring has space.
    o_check : Out(stream.Signature(WindowRequest))
    i_verdict : In(stream.Signature(WindowVerdict))
        One for each request, in order, not in the cycle of the request.
    o : Out(stream.Signature(Placement))
        One for each packet.
    qp_read : Out(QP_STATES.read_port(params))
        A read for each packet.
    o_report : Out(stream.Signature(Report))
    drop_reports : In(DropReportState)
    time_ns, cnp_interval_ns, created, created_index : In
        See :class:`~weft.hdl.receive.marks.Marks`.
    count_rx_packets, count_rx_retransmissions, count_rx_unmatched, count_rx_late_originals : Out(1)
    drop : Out(DropEvent)
    """

    COUNTS = {"rx_packets": 1, "rx_retransmissions": 1, "rx_unmatched": 1, "rx_late_originals": 1} | (
        DropReports.COUNTS | Marks.COUNTS)

    def __init__(self, params):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(RxPacket)),
            "qp_read": Out(QP_STATES.read_port(params)),
            "space": In(1),
            "o_check": Out(stream.Signature(WindowRequest)),
            "i_verdict": In(stream.Signature(WindowVerdict)),
            "o": Out(stream.Signature(Placement)),
            "o_report": Out(stream.Signature(Report)),
            "drop_reports": In(DropReportState),
            "time_ns": In(64), "cnp_interval_ns": In(32), "created": In(1), "created_index": In(24),
            **count_outputs(self.COUNTS),
            "drop": Out(DropEvent),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.waiting = waiting = Fifo(_Waiting, DEPTH, output_registers=2)
        m.submodules.gate = gate = DropReports(self.params)
        m.submodules.marks = marks = Marks(self.params)
        # No combinational path from the sinks of placements and reports to the window.
        m.submodules.responses = responses = ReadyRegister(WindowVerdict)
        wiring.connect(m, wiring.flipped(self.i_verdict), responses.i)
        wiring.connect(m, wiring.flipped(self.drop_reports), gate.reports)
        pass_counts(m, [gate, marks], self)
        m.d.comb += [
            marks.time_ns.eq(self.time_ns), marks.interval_ns.eq(self.cnp_interval_ns),
            marks.half.eq(self.drop_reports.half),
            marks.created.eq(self.created), marks.created_index.eq(self.created_index),
        ]
        self._request(m, waiting)
        self._act(m, waiting, responses.o, gate, marks)
        return m

    def _request(self, m, waiting):
        """Number the packets; send those of active QPs to the window, and all of them to the queue."""
        header, live = self.i.p.header, self.i.p.live
        ticket = Signal(TICKET_WIDTH)
        # No combinational path from the window or the queue's reader to the check.
        m.submodules.requests = requests = ReadyRegister(WindowRequest)
        request, space = requests.i.p, Signal()
        m.d.sync += space.eq(waiting.level < DEPTH - 1)      # in the next cycle, independent of this one's input
        m.d.comb += [
            self.i.ready.eq((requests.i.ready | ~live) & space),
            requests.i.valid.eq(self.i.valid & live & space),
            waiting.i.valid.eq(self.i.valid & self.i.ready),
            request.qpn.eq(header.dest_qp),
            request.generation.eq(self.i.p.qp_generation),
            request.psn.eq(header.psn),
            request.rsn.eq(header.rsn),
            request.retransmission.eq(header.retransmission),
            request.probe.eq(header.kind == RxKind.PROBE),
            request.ack_req.eq(header.ack_req),
            request.psn_guard.eq(self.i.p.qp_psn_guard),
            request.ticket.eq(ticket),
            waiting.i.p.packet.eq(self.i.p),
            waiting.i.p.ticket.eq(ticket),
        ]
        pass_unless(m, ~self.space, requests.o, self.o_check)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += ticket.eq(ticket + 1)

    def _act(self, m, waiting, response, gate, marks):
        """Join packets with verdicts; a register holds one packet until its placement and reports were accepted."""
        head, packet, header = waiting.o.p, waiting.o.p.packet, waiting.o.p.packet.header
        verdict, live = response.p.verdict, packet.live
        free, take, placed = Signal(), Signal(), Signal()
        m.d.comb += [
            take.eq(waiting.o.valid & (~live | response.valid) & free),
            waiting.o.ready.eq(take),
            response.ready.eq(take & live),
        ]

        reason = Signal(8)
        m.d.comb += reason.eq(packet.reason)
        with m.If(live), m.Switch(verdict):
            for dropped, why in DROP_REASON.items():
                with m.Case(dropped):
                    m.d.comb += reason.eq(why)
        is_dropped = reason != Reason.OK
        accepted = live & ~is_dropped & (header.kind == RxKind.DATA)
        unmatched = live & (verdict == Verdict.UNMATCHED)
        retransmitted = (verdict == Verdict.MATCH) | unmatched
        m.d.comb += placed.eq(take & accepted)
        m.d.sync += [
            self.drop.stb.eq(take & is_dropped),
            self.drop.reason.eq(reason),
            self.count_rx_packets.eq(placed),
            self.count_rx_retransmissions.eq(placed & retransmitted),
            self.count_rx_unmatched.eq(placed & unmatched),
            self.count_rx_late_originals.eq(placed & (verdict == Verdict.LATE)),
        ]

        # The placement goes out independently; the reports, at most two, one after the other.
        action = Signal(Action)
        receives = (self.qp_read.entry.state == QpState.RTR) | (self.qp_read.entry.state == QpState.RTS)
        m.d.comb += [
            self.qp_read.en.eq(take), self.qp_read.index.eq(header.dest_qp),
            self.o.p.action.eq(Mux((action == Action.WRITE) & ~receives, Action.DISCARD, action)),
        ]
        with m.If(take):
            m.d.sync += [
                self.o.valid.eq(1),
                action.eq(Mux(header.length == 0, Action.NOTHING, Mux(
                    accepted, Action.WRITE, Mux((header.kind == RxKind.RAW) & ~is_dropped, Action.RAW,
                                                Action.DISCARD)))),
                self.o.p.length.eq(header.length),
                self.o.p.roce.eq(header.roce),
                self.o.p.host.eq(header.host),
                self.o.p.segment0.eq(packet.segment0),
                self.o.p.segment1.eq(packet.segment1),
                self.o.p.two.eq(packet.segment1.length != 0),
                self.o.p.ticket.eq(head.ticket),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)

        first, second = Signal(), Signal()      # reports to send
        report_pending = Signal()                       # the gate decides whether the first one is sent
        marked = Signal(16)
        first_kind, second_kind = Signal(ReportKind), Signal(ReportKind)
        event, judged, last = Signal(_Waiting), Signal(WindowVerdict), Signal(8)
        sent = self.o_report.valid & self.o_report.ready
        m.d.comb += [
            free.eq((~self.o.valid | self.o.ready) & ~report_pending & ~marks.busy & ~(first & second)
                    & (~(first | second) | self.o_report.ready)),
            self.o_report.valid.eq(first | second),
        ]
        message_end = accepted & header.ack_req & ((verdict == Verdict.ACCEPT) | retransmitted)
        probe = live & (verdict == Verdict.PROBE)
        error = (packet.reason >= Reason.BAD_KEY) & (packet.reason <= Reason.LENGTH_MISMATCH)
        m.d.comb += [gate.dropped.eq(take & (error | packet.in_error)), gate.index.eq(header.dest_qp)]
        m.d.comb += [marks.index.eq(header.dest_qp), marks.marked.eq(placed & header.ce),
                     marks.alone.eq(~(response.p.progress | unmatched))]
        m.d.sync += report_pending.eq(gate.dropped)
        with m.If(take):
            m.d.sync += [
                first.eq(message_end | probe),
                second.eq(live & (response.p.progress | unmatched)),
                second_kind.eq(Mux(unmatched, ReportKind.UNMATCHED, ReportKind.PROGRESS)),
                first_kind.eq(Mux(probe | packet.in_error, ReportKind.PROBE,
                                  Mux(error, ReportKind.ERROR, ReportKind.MESSAGE_END))),
                event.eq(head),
                judged.eq(Mux(live, response.p.as_value(), 0)),
                last.eq(reason),
                marked.eq(0),
            ]
        with m.Elif(report_pending):
            m.d.sync += first.eq(gate.report)
        with m.Elif(sent):
            m.d.sync += first.eq(0)
            with m.If(~first):
                m.d.sync += second.eq(0)
        with m.If(marks.report):
            m.d.sync += [second.eq(1), second_kind.eq(ReportKind.MARKED), marked.eq(marks.count)]

        entry = data.View(layouts.REPORT_EVENT, self.o_report.p.entry)
        event_header = event.packet.header
        m.d.comb += [
            self.o_report.p.ticket.eq(event.ticket),
            entry.kind.eq(Mux(first, first_kind, second_kind)),
            entry.has_imm.eq(event_header.has_imm),
            entry.retransmission.eq(event_header.retransmission),
            entry.reason.eq(last),
            entry.opcode.eq(event_header.opcode),
            entry.qpn.eq(event_header.dest_qp),
            entry.generation.eq(event.packet.qp_generation),
            entry.psn.eq(Mux(event.packet.live, judged.psn, event_header.psn)),
            entry.base.eq(judged.base),
            entry.holes.eq(judged.holes),
            entry.va.eq(event_header.va),
            entry.key.eq(event_header.rkey),
            entry.length.eq(event_header.dma_length),
            entry.imm.eq(event_header.imm),
            entry.rsn.eq(event_header.rsn),
            entry.src_ip.eq(event_header.src_ip),
            entry.marked.eq(Mux(first, 0, marked)),
        ]
