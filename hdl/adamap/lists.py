"""The lists of Adamap nodes: matcher, head cache, prefetcher and what the driver posted, wired."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .. import layouts
from ..params import CardParams
from ..stream import Arbiter
from .control import ControlOp
from .head_cache import HeadCache
from .hold import ReportHold
from .matcher import Matcher
from .posted import PostedTable
from .prefetch import Prefetch


class Extent(data.Struct):
    """A piece of the knitting buffer; ``lines`` 0 removes it."""

    index: 8
    base: 58
    lines: 32


class Lists(wiring.Component):
    """Matches retransmissions with the nodes in host memory, fetched ahead.

    Throughput and latency are those of :class:`Matcher`.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(MatchRequest))
        Taken at once while ``room`` was high in the cycle before.
    room : Out(1)
    floor_en, floor_index, floor
        RSN of a list's head, a cycle later.
    i_matcher, i_prefetch : In(stream.Signature(ControlOp))
    create_stb, create_qpn, create_generation, create_done
        Start of a QP's linked count, held until done.
    link_doorbell, link_doorbell_stb : In
    i_extent : In(stream.Signature(Extent))
    retransmit_slack, prefetch_depth, prefetch_watermark : In(32)
    placed_ticket : In(8)
    o_line, i_line
        Node reads.
    o_report : Out(stream.Signature(Report))
        Retirements and QP errors, when what they speak of was placed.
    o_qp_error : Out(stream.Signature(24))
    query_linked, query_fetched : Out(32)
    judged : Out(1)
        A header was matched or refused.
    refuse_stb, refuse_reason, broken_stb, broken_reason : Out
    count_* : Out
    idle : Out(1)
    """

    COUNTS = {
        "nodes_linked": 16,
        "nodes_retired": 1,
        "nodes_residue": 1,
        "cache_hits": 1,
        "cache_misses": 1,
        "match_stall_cycles": 1,
        "prefetches": 3,
    }

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(layouts.MatchRequest)), "room": Out(1),
            "floor_en": In(1), "floor_index": In(params.qpn_width), "floor": Out(32),
            "i_matcher": In(stream.Signature(ControlOp)), "i_prefetch": In(stream.Signature(ControlOp)),
            "create_stb": In(1), "create_qpn": In(24), "create_generation": In(8), "create_done": Out(1),
            "link_doorbell": In(64), "link_doorbell_stb": In(1),
            "i_extent": In(stream.Signature(Extent)),
            "retransmit_slack": In(32), "prefetch_depth": In(32), "prefetch_watermark": In(32),
            "placed_ticket": In(8),
            "o_line": Out(stream.Signature(layouts.LineRequest)), "i_line": In(stream.Signature(layouts.LineData)),
            "o_report": Out(stream.Signature(layouts.Report)), "o_qp_error": Out(stream.Signature(24)),
            "query_linked": Out(32), "query_fetched": Out(32),
            "judged": Out(1), "refuse_stb": Out(1), "refuse_reason": Out(8),
            "broken_stb": Out(1), "broken_reason": Out(8),
            **{f"count_{name}": Out(width) for name, width in self.COUNTS.items()},
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.cache = cache = HeadCache(p)
        m.submodules.matcher = matcher = Matcher(p)
        m.submodules.hold = hold = ReportHold()
        m.submodules.prefetch = prefetch = Prefetch(p)
        m.submodules.links = links = PostedTable(p, readers=2)
        m.submodules.merge = merge = Arbiter(layouts.Report, 2)
        connect, flipped = wiring.connect, wiring.flipped

        connect(m, flipped(self.i), matcher.i)
        connect(m, matcher.o_report, hold.i)
        connect(m, hold.o, merge.i[0])
        connect(m, prefetch.o_report, merge.i[1])
        connect(m, merge.o, flipped(self.o_report))
        connect(m, matcher.cache, cache.match)
        connect(m, matcher.retire, cache.retire)
        connect(m, prefetch.cache, cache.fill)
        connect(m, matcher.o_demand, prefetch.i_demand)
        connect(m, prefetch.o_force, matcher.i_force)
        connect(m, prefetch.o_line, flipped(self.o_line))
        connect(m, flipped(self.i_line), prefetch.i_line)
        connect(m, prefetch.o_qp_error, flipped(self.o_qp_error))
        connect(m, flipped(self.i_matcher), matcher.i_control)
        connect(m, flipped(self.i_prefetch), prefetch.i_control)

        posted = data.View(layouts.LINK_DOORBELL, self.link_doorbell)
        most = p.prefetch_depth_max
        depth = Signal(range(most + 1))
        m.d.sync += depth.eq(Mux(self.prefetch_depth == 0, 1, Mux(self.prefetch_depth > most, most,
                                                                  self.prefetch_depth)))
        given_up = prefetch.o_report
        m.d.sync += [
            self.broken_stb.eq(given_up.valid & given_up.ready),
            self.broken_reason.eq(data.View(layouts.REPORT_EVENT, given_up.p.entry).reason),
        ]
        m.d.comb += [
            self.room.eq(matcher.room),
            links.post_stb.eq(self.link_doorbell_stb), links.post_qpn.eq(posted.qpn),
            links.post_generation.eq(posted.generation), links.post_value.eq(posted.linked),
            links.create_stb.eq(self.create_stb), links.create_qpn.eq(self.create_qpn),
            links.create_generation.eq(self.create_generation), links.create_value.eq(0),
            self.create_done.eq(links.create_done),
            matcher.floor_en.eq(self.floor_en), matcher.floor_index.eq(self.floor_index),
            self.floor.eq(matcher.floor),
            links.read_en[0].eq(prefetch.row_en), links.read_index[0].eq(prefetch.row_index),
            prefetch.linked.eq(links.read_data[0]),
            links.read_en[1].eq(matcher.row_en), links.read_index[1].eq(matcher.row_index),
            prefetch.view_en.eq(matcher.row_en), prefetch.view_index.eq(matcher.row_index),
            matcher.list.eq(prefetch.view), matcher.list.linked.eq(links.read_data[1].value),
            hold.placed_ticket.eq(self.placed_ticket), matcher.placed.eq(hold.placed),
            matcher.retransmit_slack.eq(self.retransmit_slack),
            matcher.prefetch_depth.eq(depth), prefetch.prefetch_depth.eq(depth),
            prefetch.prefetch_watermark.eq(Mux(self.prefetch_watermark == 0, 1, self.prefetch_watermark)),
            prefetch.post_stb.eq(links.took), prefetch.post_qpn.eq(links.took_qpn),
            matcher.wake_stb.eq(prefetch.wake_stb), matcher.wake_qpn.eq(prefetch.wake_qpn),
            matcher.waiting_qpn.eq(prefetch.waiting_qpn), prefetch.waiting.eq(matcher.waiting),
            matcher.exclusive.eq(prefetch.exclusive), prefetch.granted.eq(matcher.granted),
            self.query_linked.eq(prefetch.query_linked), self.query_fetched.eq(prefetch.query_fetched),
            self.i_extent.ready.eq(1),
        ]
        for k in range(p.knit_extents):
            base, lines = Signal(58, name=f"extent_base{k}"), Signal(32, name=f"extent_lines{k}")
            with m.If(self.i_extent.valid & (self.i_extent.p.index == k)):
                m.d.sync += [base.eq(self.i_extent.p.base), lines.eq(self.i_extent.p.lines)]
            m.d.comb += [prefetch.extent_base[k].eq(base), prefetch.extent_lines[k].eq(lines)]

        m.d.comb += [
            self.judged.eq(matcher.judged),
            self.refuse_stb.eq(matcher.refuse_stb), self.refuse_reason.eq(matcher.refuse_reason),
            self.count_nodes_linked.eq(Mux(links.took, links.took_change, 0)),
            self.count_prefetches.eq(prefetch.count_prefetches),
            *[getattr(self, f"count_{n}").eq(getattr(matcher, f"count_{n}"))
              for n in ("nodes_retired", "nodes_residue", "cache_hits", "cache_misses", "match_stall_cycles")],
            self.idle.eq(matcher.idle & hold.idle & prefetch.idle & ~merge.o.valid & ~self.link_doorbell_stb),
        ]
        return m
