"""Second level of the window: top level of matcher, head cache, prefetcher and posted values."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.params import CardParams
from ..part import layouts
from ..part.arbiter import Arbiter
from ..part.counter_ports import DropEvent, count_outputs, merged, pass_counts
from ..part.layouts import TICKET_WIDTH, Report
from ..part.select import AnyBit
from ..part.stream import Fifo
from ..part.ticket import EXTENDED_TICKET_WIDTH, follow
from ..table.kinds import QP_STATES
from .cache.cached import extent_member, held
from .cache.head_cache import HeadCache
from .match.matcher import Matcher
from .match.retire import LongReport
from .prefetch.ahead import AheadTable
from .prefetch.prefetch import Prefetch
from .window.control import ControlOp


class ReportHold(wiring.Component):
    """Queue of reports; the first leaves once the packet of its ticket was placed.

    Tickets are extended before they wait, so a report may wait for any length: after this block its 8-bit
    ticket has no meaning and need not be checked.

    Members
    -------
    i : In(stream.Signature(LongReport))
    o : Out(stream.Signature(Report))
    placed_ticket : In(8)
    placed : Out(40)
        The placed ticket, extended.
    idle : Out(1)
    """

    def __init__(self, *, depth=4):
        self.depth = depth
        super().__init__({
            "i": In(stream.Signature(LongReport)),
            "o": Out(stream.Signature(Report)),
            "placed_ticket": In(TICKET_WIDTH),
            "placed": Out(EXTENDED_TICKET_WIDTH),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = Fifo(LongReport, self.depth)
        behind = Signal(EXTENDED_TICKET_WIDTH)
        due = Signal()          # stays high while the first report waits for `ready`
        follow(m, self.placed, self.placed_ticket)
        m.d.comb += [
            behind.eq(self.placed - queue.o.p.ticket),
            self.o.valid.eq(queue.o.valid & (due | ~behind[-1])),
            self.o.p.entry.eq(queue.o.p.entry), self.o.p.ticket.eq(queue.o.p.ticket),
            queue.o.ready.eq(self.o.ready & self.o.valid),
            self.idle.eq(~queue.o.valid),
        ]
        m.d.sync += due.eq(self.o.valid & ~self.o.ready)
        m.d.comb += [queue.i.payload.eq(self.i.payload), queue.i.valid.eq(self.i.valid), self.i.ready.eq(queue.i.ready)]
        return m


class SecondLevel(wiring.Component):
    """Matches retransmissions with the nodes in host memory, which are prefetched.

    Throughput and latency are those of :class:`Matcher`.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(MatchRequest))
        Accepted at once if ``space`` was high in the cycle before.
    space : Out(1)
    unmatched : In(1)
    share_en, share_index, share : In, In, Out(1)
        As for :class:`Matcher`.
    i_matcher, i_prefetch : In(stream.Signature(ControlOp))
    create_stb, create_qpn, create_done
        Start of a QP's count of linked nodes, held until done.
    link_doorbell, link_doorbell_stb : In
    i_extent : In(stream.Signature(layouts.Extent))
    retransmit_slack, prefetch_depth, prefetch_watermark : In(32)
    placed_ticket : In(8)
    o_line, i_line
        Node reads.
    o_report : Out(stream.Signature(Report))
        Retirements and QP errors, when the packets that they refer to were placed.
    o_qp_error : Out(stream.Signature(24))
    qp : Out(QP_STATES.read_port(params)).array(3)
        The QP table, for generations.
    query_ahead, query_cached : Out(32)
    judged : Out(1)
        A header was matched or dropped.
    drop, broken : Out(DropEvent)
    count_* : Out
    idle : Out(1)
    """

    COUNTS = merged(Matcher.COUNTS, Prefetch.COUNTS, {"nodes_linked": 8})

    def __init__(self, params: CardParams):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(layouts.MatchRequest)), "space": Out(1), "unmatched": In(1),
            "share_en": In(1), "share_index": In(params.qpn_width), "share": Out(1),
            "i_matcher": In(stream.Signature(ControlOp)), "i_prefetch": In(stream.Signature(ControlOp)),
            "create_stb": In(1), "create_qpn": In(24), "create_done": Out(1),
            "link_doorbell": In(64), "link_doorbell_stb": In(1),
            "i_extent": In(stream.Signature(layouts.Extent)),
            "retransmit_slack": In(32), "prefetch_depth": In(32), "prefetch_watermark": In(32),
            "placed_ticket": In(layouts.TICKET_WIDTH),
            "o_line": Out(stream.Signature(layouts.LineRequest)), "i_line": In(stream.Signature(layouts.LineData)),
            "o_report": Out(stream.Signature(layouts.Report)), "o_qp_error": Out(stream.Signature(24)),
            "qp": Out(QP_STATES.read_port(params)).array(3), "query_ahead": Out(32), "query_cached": Out(32),
            "judged": Out(1), "drop": Out(DropEvent),
            "broken": Out(DropEvent),
            **count_outputs(self.COUNTS),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.cache = cache = HeadCache(p)
        m.submodules.matcher = matcher = Matcher(p)
        m.submodules.hold = hold = ReportHold()
        m.submodules.prefetch = prefetch = Prefetch(p)
        m.submodules.ahead_table = ahead = AheadTable(p, readers=2)
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
        connect(m, matcher.drop, flipped(self.drop))
        pass_counts(m, (matcher, prefetch), self)
        connect(m, flipped(self.i_line), prefetch.i_line)
        connect(m, prefetch.o_qp_error, flipped(self.o_qp_error))
        connect(m, flipped(self.i_matcher), matcher.i_control)
        connect(m, flipped(self.i_prefetch), prefetch.i_control)

        connect(m, prefetch.step, ahead.step)
        connect(m, ahead.qp, flipped(self.qp[0]))
        connect(m, prefetch.qp, flipped(self.qp[1]))

        m.submodules.live, m.submodules.more = live, more = AnyBit(p.block_bits), AnyBit(p.block_bits)
        m.d.comb += [live.i.eq(ahead.read_data[1].inverse), more.i.eq(ahead.read_data[1].count)]

        posted = data.View(layouts.LINK_DOORBELL, self.link_doorbell)
        most = p.prefetch_depth_max
        depth = Signal(range(most + 1))
        m.d.sync += depth.eq(Mux(self.prefetch_depth == 0, 1, Mux(self.prefetch_depth > most, most,
                                                                  self.prefetch_depth)))
        given_up = prefetch.o_report
        m.d.sync += [
            self.broken.stb.eq(given_up.valid & given_up.ready),
            self.broken.reason.eq(data.View(layouts.REPORT_EVENT, given_up.p.entry).reason),
        ]
        m.d.comb += [
            self.space.eq(matcher.space), matcher.unmatched.eq(self.unmatched), self.share.eq(matcher.share),
            matcher.share_en.eq(self.share_en), matcher.share_index.eq(self.share_index),
            ahead.post_stb.eq(self.link_doorbell_stb), ahead.post_qpn.eq(posted.qpn),
            ahead.post_generation.eq(posted.generation), ahead.post_nodes.eq(posted.nodes),
            ahead.post_block.eq(posted.block),
            ahead.create_stb.eq(self.create_stb), ahead.create_qpn.eq(self.create_qpn),
            self.create_done.eq(ahead.create_done),
            ahead.read_en[0].eq(prefetch.row_en), ahead.read_index[0].eq(prefetch.row_index),
            prefetch.ahead.eq(ahead.read_data[0]),
            ahead.read_en[1].eq(matcher.row_en), ahead.read_index[1].eq(matcher.row_index),
            self.qp[2].en.eq(matcher.row_en), self.qp[2].index.eq(matcher.row_index),
            matcher.list.live.eq(live.o), matcher.list.more.eq(more.o),
            matcher.list.generation.eq(self.qp[2].entry.generation),
            hold.placed_ticket.eq(self.placed_ticket), matcher.placed.eq(hold.placed),
            matcher.retransmit_slack.eq(self.retransmit_slack),
            matcher.prefetch_depth.eq(depth), prefetch.prefetch_depth.eq(depth),
            prefetch.prefetch_watermark.eq(Mux(self.prefetch_watermark == 0, 1, self.prefetch_watermark)),
            prefetch.post_stb.eq(ahead.took), prefetch.post_qpn.eq(ahead.took_qpn),
            matcher.wake_stb.eq(prefetch.wake_stb), matcher.wake_qpn.eq(prefetch.wake_qpn),
            matcher.waiting_qpn.eq(prefetch.waiting_qpn), prefetch.waiting.eq(matcher.waiting),
            matcher.exclusive.eq(prefetch.exclusive), prefetch.granted.eq(matcher.granted),
            self.query_ahead.eq(prefetch.query_ahead), self.query_cached.eq(prefetch.query_cached),
            self.i_extent.ready.eq(1),
        ]
        for k in range(p.knit_extents):
            base, lines = Signal(58, name=f"extent_base{k}"), Signal(extent_member(p), name=f"extent_lines{k}")
            with m.If(self.i_extent.valid & (self.i_extent.p.index == k)):
                m.d.sync += [base.eq(self.i_extent.p.base), lines.eq(held(p, self.i_extent.p.lines))]
            m.d.comb += [prefetch.extent_base[k].eq(base), prefetch.extent_lines[k].eq(lines),
                         matcher.extent_base[k].eq(base)]

        m.d.comb += [
            self.judged.eq(matcher.judged),
            self.count_nodes_linked.eq(Mux(ahead.took, ahead.took_nodes, 0)),
            self.idle.eq(matcher.idle & hold.idle & prefetch.idle & ~merge.o.valid & ~self.link_doorbell_stb
                         & ahead.idle),
        ]
        return m
