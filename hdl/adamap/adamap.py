"""The Adamap room: window, builder, matcher, head cache and prefetcher, wired."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .. import layouts
from ..params import CardParams
from ..stream import Fifo
from ..table.qp import qp_read_port
from .builder import NodeBuilder
from .control import ListControl
from .cum import CumTable
from .second_level import SecondLevel
from .window import Window


class Adamap(wiring.Component):
    """Receive window without a hardware limit: newest and first nodes on the card, the rest in host memory.

    Throughput and latency are those of :class:`Window` (a packet per 2 cycles, latency 5) and :class:`Matcher`
    (a header per cycle, latency 5, when its node is cached). The room never keeps a packet from being placed on
    account of a list: a header that finds no room in the match queue is left to the driver.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i_judge : In(stream.Signature(JudgeRequest))
    o_judgement : Out(stream.Signature(Judgement))
    i_create : In(stream.Signature(ListCreate))
        Accepted when the QP is ready for packets and doorbells.
    i_destroy : In(stream.Signature(QpRef))
    destroyed : Out(1)
        Nothing of the QP is left, no fetch of it is in flight. No packet of it may come after ``i_destroy``.
    link_doorbell, link_doorbell_stb, cum_doorbell, cum_doorbell_stb : In
        Words of :data:`abi.LINK_DOORBELL`, :data:`abi.CUM_DOORBELL`.
    qp : Out(qp_read_port(params)).array(4)
        The QP table: the room keeps no generation of its own. The entry of a QP stands there before a doorbell of it
        comes, and until the QP is destroyed here.
    i_extent : In(stream.Signature(layouts.Extent))
    reorder_distance, node_age_ns, retransmit_slack, prefetch_depth, prefetch_watermark : In(32)
    time_ns : In(64)
    placed_ticket : In(8)
        As :class:`Reporter` takes it.
    o_line, i_line
        Node reads.
    o_report : Out(stream.Signature(Report)).array(2)
        0: nodes. 1: retirements and QP errors. Both leave only when what they speak of was placed:
        the reporter need not look at their tickets (``unticketed``).
    o_qp_error : Out(stream.Signature(24))
    query_stb, query_qpn, query_done, query_result
        Window base, holes, nodes linked but not fetched, nodes cached.
    idle : Out(1)
        Nothing is under way, and no node is open.
    refuse_stb, refuse_reason : Out
        A retransmission was refused by the matcher.
    broken_stb, broken_reason : Out
        A QP's list was given up; a QP error tells of it.
    count_* : Out
        Counters of :data:`abi.COUNTERS`; ``count_holes`` and ``count_nodes_linked`` are added.
    """

    COUNTS = {"holes": 24, "nodes_sealed": 1, "window_stall_cycles": 1, **SecondLevel.COUNTS}

    def __init__(self, params: CardParams):
        self.params = params
        config = ("reorder_distance", "node_age_ns", "retransmit_slack", "prefetch_depth", "prefetch_watermark")
        super().__init__({
            "i_judge": In(stream.Signature(layouts.JudgeRequest)),
            "o_judgement": Out(stream.Signature(layouts.Judgement)),
            "i_create": In(stream.Signature(layouts.ListCreate)),
            "i_destroy": In(stream.Signature(layouts.QpRef)), "destroyed": Out(1),
            "link_doorbell": In(64), "link_doorbell_stb": In(1), "cum_doorbell": In(64), "cum_doorbell_stb": In(1),
            "qp": Out(qp_read_port(params)).array(4),
            "i_extent": In(stream.Signature(layouts.Extent)),
            **{name: In(32) for name in config},
            "time_ns": In(64), "placed_ticket": In(layouts.TICKET_WIDTH),
            "o_line": Out(stream.Signature(layouts.LineRequest)), "i_line": In(stream.Signature(layouts.LineData)),
            "o_report": Out(stream.Signature(layouts.Report)).array(2),
            "o_qp_error": Out(stream.Signature(24)),
            "query_stb": In(1), "query_qpn": In(24), "query_done": Out(1), "query_result": Out(32).array(4),
            "idle": Out(1), "refuse_stb": Out(1), "refuse_reason": Out(8),
            "broken_stb": Out(1), "broken_reason": Out(8),
            **{f"count_{name}": Out(width) for name, width in self.COUNTS.items()},
        })

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.control = control = ListControl()
        m.submodules.window = window = Window(p)
        m.submodules.runs = runs = Fifo(layouts.HoleRun, 4)
        m.submodules.builder = builder = NodeBuilder(p)
        m.submodules.second_level = second = SecondLevel(p)
        m.submodules.cum = cum = CumTable(p)
        connect, flipped = wiring.connect, wiring.flipped

        connect(m, flipped(self.i_judge), window.i)
        connect(m, window.o, flipped(self.o_judgement))
        connect(m, window.o_run, runs.i)
        connect(m, runs.o, builder.i)
        connect(m, builder.o, flipped(self.o_report[0]))
        connect(m, window.o_match, second.i)
        connect(m, second.o_report, flipped(self.o_report[1]))
        connect(m, second.o_line, flipped(self.o_line))
        connect(m, flipped(self.i_line), second.i_line)
        connect(m, second.o_qp_error, flipped(self.o_qp_error))
        connect(m, flipped(self.i_extent), second.i_extent)
        connect(m, flipped(self.i_create), control.i_create)
        connect(m, flipped(self.i_destroy), control.i_destroy)
        connect(m, control.o_window, window.i_control)
        connect(m, control.o_matcher, second.i_matcher)
        connect(m, control.o_prefetch, second.i_prefetch)

        for k in range(3):
            connect(m, second.qp[k], flipped(self.qp[k]))
        connect(m, cum.qp, flipped(self.qp[3]))

        # The two tables of posted values take the start of a QP one after the other, each when it has a free cycle.
        start, started = control.o_posted, Signal()
        posted = data.View(layouts.CUM_DOORBELL, self.cum_doorbell)
        m.d.comb += [
            cum.post_stb.eq(self.cum_doorbell_stb), cum.post_qpn.eq(posted.qpn),
            cum.post_generation.eq(posted.generation), cum.post_psn.eq(posted.psn),
            cum.create_stb.eq(start.valid & started), cum.create_qpn.eq(start.p.qpn), cum.create_psn.eq(start.p.psn),
            second.create_stb.eq(start.valid & ~started), second.create_qpn.eq(start.p.qpn),
            start.ready.eq(cum.create_done),
        ]
        with m.If(second.create_done):
            m.d.sync += started.eq(1)
        with m.If(cum.create_done):
            m.d.sync += started.eq(0)

        m.d.comb += [
            window.reorder_distance.eq(self.reorder_distance),
            second.share_en.eq(window.row_en), second.share_index.eq(window.row_index),
            window.match_room.eq(second.room & second.share), second.unmatched.eq(window.unmatched),
            cum.read_en.eq(window.row_en), cum.read_index.eq(window.row_index), window.cum.eq(cum.read_data),
            builder.time_ns.eq(self.time_ns), builder.node_age_ns.eq(self.node_age_ns),
            builder.placed_ticket.eq(self.placed_ticket), second.placed_ticket.eq(self.placed_ticket),
            second.link_doorbell.eq(self.link_doorbell), second.link_doorbell_stb.eq(self.link_doorbell_stb),
            second.retransmit_slack.eq(self.retransmit_slack),
            second.prefetch_depth.eq(self.prefetch_depth), second.prefetch_watermark.eq(self.prefetch_watermark),
            control.discarded.eq(builder.discarded),
            self.destroyed.eq(control.destroyed),
            control.query_stb.eq(self.query_stb), control.query_qpn.eq(self.query_qpn),
            self.query_done.eq(control.query_done),
            self.query_result[0].eq(window.query_base), self.query_result[1].eq(window.query_holes),
            self.query_result[2].eq(second.query_ahead), self.query_result[3].eq(second.query_cached),
            self.refuse_stb.eq(second.refuse_stb), self.refuse_reason.eq(second.refuse_reason),
            self.broken_stb.eq(second.broken_stb), self.broken_reason.eq(second.broken_reason),
            self.count_holes.eq(window.count_holes),
            self.count_window_stall_cycles.eq(window.count_window_stall_cycles),
            self.count_nodes_sealed.eq(builder.count_nodes_sealed),
            *[getattr(self, f"count_{n}").eq(getattr(second, f"count_{n}")) for n in SecondLevel.COUNTS],
            self.idle.eq(control.idle & window.idle & ~runs.o.valid & builder.idle & second.idle
                         & ~self.cum_doorbell_stb),
        ]
        return m
