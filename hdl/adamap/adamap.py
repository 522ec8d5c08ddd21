"""Adamap subsystem: top level of window, builder, matcher, head cache and prefetcher."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import CardParams
from ..part import layouts
from ..part.counter_ports import DropEvent, count_outputs, merged, pass_counts
from ..part.interfaces import QpControl
from ..part.registers import register_port
from ..part.stream import Fifo
from ..table.kinds import QP_STATES
from .builder.builder import NodeBuilder
from .second_level import SecondLevel
from .window.control import ListControl
from .window.cum import CumTable
from .window.window import Window


class Adamap(wiring.Component):
    """Receive window in host memory: the newest PSNs and the first nodes of every list are on the card.

    Throughput and latency are those of :class:`Window` (a packet per 2 cycles, latency 5) and :class:`Matcher`
    (a header per cycle, latency 6, when its node is cached). The state of a list never stalls the placement of packets:
    a header that finds no space in the match queue is left to the driver.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i_check : In(stream.Signature(WindowRequest))
    o_verdict : Out(stream.Signature(WindowVerdict))
    qp_control : In(QpControl)
        ``create`` is accepted when the QP is ready for packets and doorbells. ``destroyed``: no state and no fetch of
        the QP is left. No packet of it may come after ``destroy``. The response to a query is: window base, holes,
        nodes linked but not fetched, nodes cached.
    registers : In(register_port("adamap"))
        The doorbells are words of :data:`abi.LINK_DOORBELL`, :data:`abi.CUM_DOORBELL`.
    qp : Out(QP_STATES.read_port(params)).array(4)
        The QP table, the only source of generations. The entry of a QP must be written before a doorbell of the QP
        comes, and stay until the QP is destroyed here.
    i_extent : In(stream.Signature(layouts.Extent))
    time_ns : In(64)
    placed_ticket : In(8)
        As for :class:`Reporter`.
    o_line, i_line
        Node reads.
    o_report : Out(stream.Signature(Report)).array(2)
        0: nodes. 1: retirements and QP errors, which leave only when the packets that they refer to were placed. The
        reporter need not check the tickets of either (``unticketed``).
    o_qp_error : Out(stream.Signature(24))
        Number of a QP whose list was abandoned.
    idle : Out(1)
        Nothing is in progress, and no node is open.
    drop : Out(DropEvent)
        The matcher dropped a retransmission.
    broken : Out(DropEvent)
        A QP's list was abandoned; a QP error reports it.
    count_* : Out
        Counters of :data:`abi.COUNTERS`; ``count_holes`` and ``count_nodes_linked`` are added.
    """

    COUNTS = merged(Window.COUNTS, NodeBuilder.COUNTS, SecondLevel.COUNTS)

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i_check": In(stream.Signature(layouts.WindowRequest)),
            "o_verdict": Out(stream.Signature(layouts.WindowVerdict)),
            "qp_control": In(QpControl), "registers": In(register_port("adamap")),
            "qp": Out(QP_STATES.read_port(params)).array(4),
            "i_extent": In(stream.Signature(layouts.Extent)),
            "time_ns": In(64), "placed_ticket": In(layouts.TICKET_WIDTH),
            "o_line": Out(stream.Signature(layouts.LineRequest)), "i_line": In(stream.Signature(layouts.LineData)),
            "o_report": Out(stream.Signature(layouts.Report)).array(2),
            "o_qp_error": Out(stream.Signature(24)),
            "idle": Out(1), "drop": Out(DropEvent),
            "broken": Out(DropEvent),
            **count_outputs(self.COUNTS),
        })

    def elaborate(self, platform):
        m = Module()
        p, registers = self.params, self.registers
        m.submodules.control = control = ListControl()
        m.submodules.window = window = Window(p)
        m.submodules.runs = runs = Fifo(layouts.HoleRun, 4)
        m.submodules.builder = builder = NodeBuilder(p)
        m.submodules.second_level = second = SecondLevel(p)
        m.submodules.cum = cum = CumTable(p)
        connect, flipped = wiring.connect, wiring.flipped

        connect(m, flipped(self.i_check), window.i)
        connect(m, window.o, flipped(self.o_verdict))
        connect(m, window.o_run, runs.i)
        connect(m, runs.o, builder.i)
        connect(m, builder.o, flipped(self.o_report[0]))
        connect(m, window.o_match, second.i)
        connect(m, second.o_report, flipped(self.o_report[1]))
        connect(m, second.o_line, flipped(self.o_line))
        connect(m, second.drop, flipped(self.drop))
        connect(m, second.broken, flipped(self.broken))
        pass_counts(m, (window, builder, second), self)
        connect(m, flipped(self.i_line), second.i_line)
        connect(m, second.o_qp_error, flipped(self.o_qp_error))
        connect(m, flipped(self.i_extent), second.i_extent)
        connect(m, flipped(self.qp_control.create), control.i_create)
        connect(m, flipped(self.qp_control.destroy), control.i_destroy)
        connect(m, control.o_window, window.i_control)
        connect(m, control.o_matcher, second.i_matcher)
        connect(m, control.o_prefetch, second.i_prefetch)

        for k in range(3):
            connect(m, second.qp[k], flipped(self.qp[k]))
        connect(m, cum.qp, flipped(self.qp[3]))

        # The two tables of posted values are initialised for a new QP one after the other, each in a free cycle.
        start, started = control.o_posted, Signal()
        posted = data.View(layouts.CUM_DOORBELL, registers.cum_doorbell)
        m.d.comb += [
            cum.post_stb.eq(registers.cum_doorbell_stb), cum.post_qpn.eq(posted.qpn),
            cum.post_generation.eq(posted.generation), cum.post_psn.eq(posted.psn),
            cum.create_stb.eq(start.valid & started), cum.create_qpn.eq(start.p.qpn), cum.create_psn.eq(start.p.psn),
            second.create_stb.eq(start.valid & ~started), second.create_qpn.eq(start.p.qpn),
            start.ready.eq(cum.create_done),
        ]
        with m.If(second.create_done):
            m.d.sync += started.eq(1)
        with m.If(cum.create_done):
            m.d.sync += started.eq(0)

        # The result is used two cycles after a row was requested.
        m.d.sync += [second.share_en.eq(window.row_en), second.share_index.eq(window.row_index)]
        m.d.comb += [
            window.reorder_distance.eq(registers.reorder_distance),
            window.match_space.eq(second.space & second.share), second.unmatched.eq(window.unmatched),
            cum.read_en.eq(window.row_en), cum.read_index.eq(window.row_index), window.cum.eq(cum.read_data),
            builder.time_ns.eq(self.time_ns), builder.node_age_ns.eq(registers.node_age_ns),
            second.placed_ticket.eq(self.placed_ticket),
            second.link_doorbell.eq(registers.link_doorbell), second.link_doorbell_stb.eq(registers.link_doorbell_stb),
            second.retransmit_slack.eq(registers.retransmit_slack),
            second.prefetch_depth.eq(registers.prefetch_depth),
            second.prefetch_watermark.eq(registers.prefetch_watermark),
            control.discarded.eq(builder.discarded),
            self.qp_control.destroyed.eq(control.destroyed),
            control.query_stb.eq(self.qp_control.query_stb), control.query_qpn.eq(self.qp_control.query_qpn),
            self.qp_control.query_done.eq(control.query_done),
            self.qp_control.query_result[0].eq(window.query_base),
            self.qp_control.query_result[1].eq(window.query_holes),
            self.qp_control.query_result[2].eq(second.query_ahead),
            self.qp_control.query_result[3].eq(second.query_cached),
            self.idle.eq(control.idle & window.idle & ~runs.o.valid & builder.idle & second.idle
                         & ~registers.cum_doorbell_stb),
        ]
        return m
