"""The Adamap room: window, builder, matcher, head cache and prefetcher, wired."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .. import layouts
from ..params import CardParams
from ..stream import Arbiter, Fifo
from .builder import NodeBuilder
from .control import ListControl, QpRef
from .head_cache import HeadCache
from .hold import ReportHold
from .matcher import Matcher
from .posted import PostedTable
from .prefetch import Prefetch
from .window import Window


class Extent(data.Struct):
    """A piece of the knitting buffer; ``lines`` 0 removes it."""

    index: 8
    base: 58
    lines: 32


class Adamap(wiring.Component):
    """Receive window without a hardware limit: newest and first nodes on the card, the rest in host memory.

    Throughput and latency are those of :class:`Window` (a packet per 2 cycles, latency 5) and :class:`Matcher`
    (a header per 2 cycles when its node is cached). The room never keeps a packet from being placed on account of a
    list: what finds no room in the match queue is refused.

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
    i_extent : In(stream.Signature(Extent))
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
        Window base, holes, nodes linked, nodes fetched.
    idle : Out(1)
        Nothing is under way, and no node is open.
    refuse_stb, refuse_reason : Out
        A retransmission was refused by the matcher.
    broken_stb, broken_reason : Out
        A QP's list was given up; a QP error tells of it.
    count_* : Out
        Counters of :data:`abi.COUNTERS`; ``count_holes`` and ``count_nodes_linked`` are added.
    """

    COUNTS = {
        "holes": 24,
        "nodes_sealed": 1,
        "nodes_linked": 16,
        "nodes_retired": 1,
        "nodes_residue": 1,
        "cache_hits": 1,
        "cache_misses": 1,
        "match_stall_cycles": 1,
        "prefetches": 1,
        "window_stall_cycles": 1,
    }

    def __init__(self, params: CardParams):
        self.params = params
        config = ("reorder_distance", "node_age_ns", "retransmit_slack", "prefetch_depth", "prefetch_watermark")
        super().__init__({
            "i_judge": In(stream.Signature(layouts.JudgeRequest)),
            "o_judgement": Out(stream.Signature(layouts.Judgement)),
            "i_create": In(stream.Signature(layouts.ListCreate)),
            "i_destroy": In(stream.Signature(QpRef)), "destroyed": Out(1),
            "link_doorbell": In(64), "link_doorbell_stb": In(1), "cum_doorbell": In(64), "cum_doorbell_stb": In(1),
            "i_extent": In(stream.Signature(Extent)),
            **{name: In(32) for name in config},
            "time_ns": In(64), "placed_ticket": In(8),
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
        m.submodules.cache = cache = HeadCache(p)
        m.submodules.matcher = matcher = Matcher(p)
        m.submodules.hold = hold = ReportHold()
        m.submodules.prefetch = prefetch = Prefetch(p)
        m.submodules.cum = cum = PostedTable(p, readers=1)
        m.submodules.links = links = PostedTable(p, readers=2)
        m.submodules.merge = merge = Arbiter(layouts.Report, 2)
        connect, flipped = wiring.connect, wiring.flipped

        connect(m, flipped(self.i_judge), window.i)
        connect(m, window.o, flipped(self.o_judgement))
        connect(m, window.o_run, runs.i)
        connect(m, runs.o, builder.i)
        connect(m, window.o_match, matcher.i)
        connect(m, builder.o, flipped(self.o_report[0]))
        connect(m, matcher.o_report, hold.i)
        connect(m, hold.o, merge.i[0])
        connect(m, prefetch.o_report, merge.i[1])
        connect(m, merge.o, flipped(self.o_report[1]))
        connect(m, matcher.cache, cache.match)
        connect(m, prefetch.cache, cache.fill)
        connect(m, matcher.o_demand, prefetch.i_demand)
        connect(m, prefetch.o_force, matcher.i_force)
        connect(m, prefetch.o_line, flipped(self.o_line))
        connect(m, flipped(self.i_line), prefetch.i_line)
        connect(m, prefetch.o_qp_error, flipped(self.o_qp_error))
        connect(m, flipped(self.i_create), control.i_create)
        connect(m, flipped(self.i_destroy), control.i_destroy)
        for block, name in ((window, "o_window"), (matcher, "o_matcher"), (prefetch, "o_prefetch")):
            connect(m, getattr(control, name), block.i_control)

        for table, word, stb, layout in ((links, self.link_doorbell, self.link_doorbell_stb, layouts.LINK_DOORBELL),
                                         (cum, self.cum_doorbell, self.cum_doorbell_stb, layouts.CUM_DOORBELL)):
            posted = data.View(layout, word)
            start = control.o_posted
            m.d.comb += [
                table.post_stb.eq(stb), table.post_qpn.eq(posted.qpn), table.post_generation.eq(posted.generation),
                table.create_qpn.eq(start.p.qpn), table.create_generation.eq(start.p.generation),
            ]
        # Each table takes the start of a QP when it has a free cycle.
        started = Signal()
        m.d.comb += [
            links.post_value.eq(data.View(layouts.LINK_DOORBELL, self.link_doorbell).linked),
            cum.post_value.eq(data.View(layouts.CUM_DOORBELL, self.cum_doorbell).psn),
            links.create_stb.eq(control.o_posted.valid & ~started), links.create_value.eq(0),
            cum.create_stb.eq(control.o_posted.valid & started), cum.create_value.eq(control.o_posted.p.psn),
            control.o_posted.ready.eq(cum.create_done),
        ]
        with m.If(links.create_done):
            m.d.sync += started.eq(1)
        with m.If(cum.create_done):
            m.d.sync += started.eq(0)

        given_up = prefetch.o_report
        m.d.sync += [
            self.broken_stb.eq(given_up.valid & given_up.ready),
            self.broken_reason.eq(data.View(layouts.REPORT_EVENT, given_up.p.entry).reason),
        ]

        depth = Signal(range(p.prefetch_depth_max + 1))
        m.d.sync += depth.eq(
            Mux(
                self.prefetch_depth == 0,
                1,
                Mux(self.prefetch_depth > p.prefetch_depth_max, p.prefetch_depth_max, self.prefetch_depth),
            )
        )
        m.d.comb += [
            window.reorder_distance.eq(self.reorder_distance),
            window.match_room.eq(matcher.room),
            cum.read_en[0].eq(window.row_en),
            cum.read_index[0].eq(window.row_index),
            window.cum.eq(cum.read_data[0]),
            matcher.head_en[0].eq(window.row_en),
            matcher.head_index[0].eq(window.row_index),
            window.floor.eq(matcher.head[0].rsn),
            matcher.head_en[1].eq(prefetch.row_en),
            matcher.head_index[1].eq(prefetch.row_index),
            prefetch.head.eq(matcher.head[1]),
            links.read_en[0].eq(prefetch.row_en),
            links.read_index[0].eq(prefetch.row_index),
            prefetch.linked.eq(links.read_data[0]),
            links.read_en[1].eq(matcher.row_en),
            links.read_index[1].eq(matcher.row_index),
            prefetch.view_en.eq(matcher.row_en),
            prefetch.view_index.eq(matcher.row_index),
            matcher.list.eq(prefetch.view),
            matcher.list.linked.eq(links.read_data[1].value),
            builder.time_ns.eq(self.time_ns),
            builder.node_age_ns.eq(self.node_age_ns),
            builder.placed_ticket.eq(self.placed_ticket),
            hold.placed_ticket.eq(self.placed_ticket),
            matcher.placed.eq(hold.placed),
            matcher.retransmit_slack.eq(self.retransmit_slack),
            matcher.prefetch_depth.eq(depth),
            prefetch.prefetch_depth.eq(depth),
            prefetch.prefetch_watermark.eq(Mux(self.prefetch_watermark == 0, 1, self.prefetch_watermark)),
            prefetch.post_stb.eq(links.took),
            prefetch.post_qpn.eq(links.took_qpn),
            matcher.wake_stb.eq(prefetch.wake_stb),
            matcher.wake_qpn.eq(prefetch.wake_qpn),
            matcher.waiting_qpn.eq(prefetch.waiting_qpn),
            prefetch.waiting.eq(matcher.waiting),
            matcher.exclusive.eq(prefetch.exclusive),
            prefetch.granted.eq(matcher.granted),
            control.discarded.eq(builder.discarded),
            self.destroyed.eq(control.destroyed),
            control.query_stb.eq(self.query_stb),
            control.query_qpn.eq(self.query_qpn),
            self.query_done.eq(control.query_done),
            self.query_result[0].eq(window.query_base),
            self.query_result[1].eq(window.query_holes),
            self.query_result[2].eq(prefetch.query_linked),
            self.query_result[3].eq(prefetch.query_fetched),
        ]
        m.d.comb += self.i_extent.ready.eq(1)
        for k in range(p.knit_extents):
            base, lines = Signal(58, name=f"extent_base{k}"), Signal(32, name=f"extent_lines{k}")
            with m.If(self.i_extent.valid & (self.i_extent.p.index == k)):
                m.d.sync += [base.eq(self.i_extent.p.base), lines.eq(self.i_extent.p.lines)]
            m.d.comb += [prefetch.extent_base[k].eq(base), prefetch.extent_lines[k].eq(lines)]

        m.d.comb += [
            self.refuse_stb.eq(matcher.refuse_stb),
            self.refuse_reason.eq(matcher.refuse_reason),
            self.count_holes.eq(window.count_holes),
            self.count_window_stall_cycles.eq(window.count_window_stall_cycles),
            self.count_nodes_sealed.eq(builder.count_nodes_sealed),
            self.count_nodes_linked.eq(Mux(links.took, links.took_change, 0)),
            self.count_prefetches.eq(prefetch.count_prefetches),
            *[
                getattr(self, f"count_{n}").eq(getattr(matcher, f"count_{n}"))
                for n in ("nodes_retired", "nodes_residue", "cache_hits", "cache_misses", "match_stall_cycles")
            ],
            self.idle.eq(
                control.idle
                & window.idle
                & ~runs.o.valid
                & builder.idle
                & matcher.idle
                & hold.idle
                & prefetch.idle
                & ~merge.o.valid
                & ~self.link_doorbell_stb
                & ~self.cum_doorbell_stb
            ),
        ]
        return m
