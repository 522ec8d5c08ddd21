"""A list that cannot be trusted any longer ends, and its QP with it."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from ..contract.params import CardParams
from ..part.layouts import REPORT_EVENT, Report


class ListBreak(wiring.Component):
    """Ends a list, reports why, and has the QP stopped: one after the other, each when it is taken.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    start, reason : In
        The list breaks.
    qpn, generation : In
        Whose it is, from the next cycle until ``done``.
    end, end_ready : Out(1), In(1)
        The table of the nodes ahead is asked to end it.
    o_report : Out(stream.Signature(Report))
        Kind QP_ERROR.
    o_qp_error : Out(stream.Signature(24))
    done : Out(1)
    """

    def __init__(self, params: CardParams):
        super().__init__({
            "start": In(1), "reason": In(8), "qpn": In(params.qpn_width), "generation": In(8),
            "end": Out(1), "end_ready": In(1),
            "o_report": Out(stream.Signature(Report)), "o_qp_error": Out(stream.Signature(24)), "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        event, reason = Signal(REPORT_EVENT), Signal.like(self.reason)
        m.d.comb += [
            event.kind.eq(abi.ReportKind.QP_ERROR.value), event.reason.eq(reason), event.qpn.eq(self.qpn),
            event.generation.eq(self.generation), self.o_report.p.entry.eq(event),
            self.o_qp_error.payload.eq(self.qpn),
        ]
        with m.FSM():
            with m.State("IDLE"):  # waits for a list that breaks
                m.d.sync += reason.eq(self.reason)
                with m.If(self.start):
                    m.next = "END"
            with m.State("END"):  # waits for the table
                m.d.comb += self.end.eq(1)
                with m.If(self.end_ready):
                    m.next = "REPORT"
            with m.State("REPORT"):  # waits for the report queue
                m.d.comb += self.o_report.valid.eq(1)
                with m.If(self.o_report.ready):
                    m.next = "STOP_QP"
            with m.State("STOP_QP"):  # waits for the command processor
                m.d.comb += [self.o_qp_error.valid.eq(1), self.done.eq(self.o_qp_error.ready)]
                with m.If(self.o_qp_error.ready):
                    m.next = "IDLE"
        return m
