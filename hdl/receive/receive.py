"""Receive subsystem: from the MAC to payload in host memory."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..part.counter_ports import DropEvent, count_outputs, merged, pass_counts
from ..part.interfaces import DropReportState, Network
from ..part.layouts import TICKET_WIDTH, Beat, DmaRequest, RawFrame, Report, WindowRequest, WindowVerdict
from ..part.registers import register_port
from ..table.kinds import QP_STATES
from ..table.translate import TranslateRequest, Translation
from .check import RxCheck
from .in_flight import InFlightCounter
from .parse import Parse
from .place import Place
from .window_check import WindowCheck


class Receive(wiring.Component):
    """Top level of :class:`Parse`, :class:`RxCheck`, :class:`WindowCheck`, :class:`Place` and :class:`InFlightCounter`.

    One beat per cycle, one packet every two cycles; everything in the order of arrival.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(Beat))
        Frames from the MAC; ``ready`` is always 1.
    enable, network : In(1), In(Network)
        See :class:`Parse`.
    time_ns, created, created_index : In(64), In(1), In(24)
        See :class:`~weft.hdl.receive.marks.Marks`.
    registers : In(register_port("receive"))
    o_translate, i_translate
        To and from the receive side's ``Translate``.
    qp_read : Out(QP_STATES.read_port(params))
        See :class:`WindowCheck`.
    o_check, i_verdict, space, drop_reports
        To and from the window; space in the report ring; see :class:`~weft.hdl.receive.drop_reports.DropReports`.
    o_report : Out(stream.Signature(Report))
    o_request, o_data
        A client of the DMA write engine.
    o_raw_info, o_raw
        To the Simple NIC.
    placed_ticket : Out(8)
    drain_request, drain_done : In(1), Out(1)
        See :class:`InFlightCounter`.
    pause_enabled, pause_high, pause_low : In(1), Out(1), Out(1)
        See :class:`Parse`.
    idle : Out(1)
        No packet is between the parser's output and its placement.
    drop : Out(DropEvent).array(2)
        Drops of the parser, and those after it.
    count_... : Out
        Amounts to be added each cycle.
    """

    COUNTS = merged(Parse.COUNTS, WindowCheck.COUNTS, Place.COUNTS, {"rx_stall_cycles": 1})

    def __init__(self, params):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(Beat)),
            "enable": In(1),
            "network": In(Network),
            "time_ns": In(64), "created": In(1), "created_index": In(24),
            "registers": In(register_port("receive")),
            "o_translate": Out(stream.Signature(TranslateRequest)),
            "i_translate": In(stream.Signature(Translation)),
            "qp_read": Out(QP_STATES.read_port(params)),
            "o_check": Out(stream.Signature(WindowRequest)),
            "i_verdict": In(stream.Signature(WindowVerdict)),
            "space": In(1),
            "drop_reports": In(DropReportState),
            "o_report": Out(stream.Signature(Report)),
            "o_request": Out(stream.Signature(DmaRequest)),
            "o_data": Out(stream.Signature(Beat)),
            "o_raw_info": Out(stream.Signature(RawFrame)),
            "o_raw": Out(stream.Signature(Beat)),
            "placed_ticket": Out(TICKET_WIDTH),
            "drain_request": In(1),
            "drain_done": Out(1),
            "pause_enabled": In(1),
            "pause_high": Out(1), "pause_low": Out(1),
            "idle": Out(1),
            "drop": Out(DropEvent).array(2),
            **count_outputs(self.COUNTS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.parse = parse = Parse(self.params)
        m.submodules.check = check = RxCheck(self.params)
        m.submodules.window_check = check_window = WindowCheck(self.params)
        m.submodules.place = place = Place()
        m.submodules.drain = drain = InFlightCounter()
        connect(m, flipped(self.i), parse.i)
        connect(m, flipped(self.network), parse.network)
        connect(m, parse.o_header, check.i)
        connect(m, parse.o_translate, flipped(self.o_translate))
        connect(m, parse.o_outcome, check.i_outcome)
        connect(m, flipped(self.i_translate), check.i_translate)
        connect(m, check.o, check_window.i)
        connect(m, flipped(self.drop_reports), check_window.drop_reports)
        connect(m, check_window.o_check, flipped(self.o_check))
        connect(m, flipped(self.i_verdict), check_window.i_verdict)
        connect(m, check_window.o_report, flipped(self.o_report))
        connect(m, check_window.o, place.i)
        connect(m, check_window.qp_read, flipped(self.qp_read))
        connect(m, parse.o_payload, place.i_payload)
        for name in ("o_request", "o_data", "o_raw_info", "o_raw"):
            connect(m, getattr(place, name), flipped(getattr(self, name)))

        stall, done, raw_done = Signal(), Signal(), Signal()       # a cycle late
        m.d.sync += [done.eq(place.done_stb), raw_done.eq(place.raw_stb)]
        m.d.sync += stall.eq(place.stalled | (parse.o_header.valid & ~parse.o_header.ready))
        m.d.comb += [
            parse.enable.eq(self.enable),
            parse.pause_enabled.eq(self.pause_enabled),
            self.pause_high.eq(parse.pause_high), self.pause_low.eq(parse.pause_low),
            parse.host_qpns.eq(self.registers.host_qpns),
            check_window.space.eq(self.space),
            check_window.time_ns.eq(self.time_ns), check_window.cnp_interval_ns.eq(self.registers.cnp_interval_ns),
            check_window.created.eq(self.created), check_window.created_index.eq(self.created_index),
            parse.raw_done.eq(raw_done),
            self.placed_ticket.eq(place.placed_ticket),
            drain.request_stb.eq(parse.request_stb),
            drain.outcome_stb.eq(parse.outcome_stb),
            parse.give_up.eq(drain.give_up),
            drain.enter_stb.eq(parse.header_stb),
            drain.leave_stb.eq(done),
            drain.request.eq(self.drain_request),
            self.drain_done.eq(drain.done),
            self.idle.eq(drain.idle),
            self.count_rx_stall_cycles.eq(stall),
        ]
        pass_counts(m, (parse, check_window, place), self)
        for drop, block in zip(self.drop, (parse, check_window), strict=True):
            connect(m, block.drop, flipped(drop))
        return m
